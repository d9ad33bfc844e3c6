"""helm installs, upgrades and uninstalls the charts on a real control plane.

The namespaces enforce the restricted Pod Security Standard, and there are no Nodes: that pods exist
is what the controllers and admission made of the charts.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigfleet.api.install import GROUP_VERSION, SYSTEM_NAMESPACE, install
from bigfleet.commands import roles
from bigfleet.commands.config_flags import LazyParser
from bigfleet.kube.client import ApiError, KubeClient
from loaddriver.substrates.base import Cluster
from tests.charts.cluster_rig import items, pods_of, restricted
from tests.charts.helm_rig import (
    CLUSTER,
    FLEET,
    RELEASE,
    VALUES,
    Helm,
    HelmFailed,
    Object,
    Replica,
    of_kind,
    replicas,
)
from tests.support.clusters import get, namespace, pod
from tests.support.ports import free_address
from tests.support.shared_clusters import SharedClusters
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# Collections that the fleet's chart writes to.
NAMESPACED = (
    "/apis/apps/v1/namespaces/{}/statefulsets",
    "/apis/apps/v1/namespaces/{}/deployments",
    "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "/api/v1/namespaces/{}/services",
    "/api/v1/namespaces/{}/configmaps",
    "/api/v1/namespaces/{}/serviceaccounts",
)
# The CRDs of Certificates and monitors are not BigFleet's.
WITHOUT_OTHERS = {
    FLEET: ("--set=identity.certManager.enabled=false", "--set=serviceMonitor.enabled=false"),
    CLUSTER: ("--set=identity.certManager.enabled=false", "--set=podMonitor.enabled=false"),
}


@pytest.fixture
def empty_cluster(helm: Helm, shared_clusters: SharedClusters) -> Cluster:
    """A control plane on which nothing of BigFleet is installed; `helm` may skip first."""
    assert helm
    return shared_clusters.of("charts")["charts"]


@pytest.fixture
def installer(helm: Helm, empty_cluster: Cluster) -> Helm:
    """helm with access to the cluster."""
    return replace(helm, access=("--kubeconfig", str(empty_cluster.kubeconfigs["admin"])))


async def await_pods(client: KubeClient, name: str, **expected: int) -> None:
    """Wait until the components have that many pods; fail with what admission refused."""
    wanted = Counter({component.replace("_", "-"): n for component, n in expected.items()})

    async def exist() -> bool:
        return await pods_of(client, name) == wanted

    try:
        await eventually(exist)
    except AssertionError:
        events = await items(client, f"/api/v1/namespaces/{name}/events")
        refused = [each["message"] for each in events if each["reason"] == "FailedCreate"]
        raise AssertionError(f"{await pods_of(client, name)}, refused: {refused}") from None


async def await_image(client: KubeClient, name: str, image: str) -> None:
    """Wait until both controllers of a cluster have a pod with the image.

    A rollout goes no further: it waits for that pod to be ready.
    """

    async def exist() -> bool:
        pods = await items(client, f"/api/v1/namespaces/{name}/pods")
        images = Counter(each["spec"]["containers"][0]["image"] for each in pods)
        return images[image] >= 2

    await eventually(exist, f"pods with {image}")


async def owned(client: KubeClient, name: str) -> set[str]:
    """What is there of the release."""
    found = set()
    for collection in NAMESPACED:
        path = collection.format(name)
        for each in await items(client, path):
            if each["metadata"].get("labels", {}).get("app.kubernetes.io/managed-by") == "Helm":
                found.add(f"{path.rpartition('/')[2]}/{each['metadata']['name']}")
    return found


async def test_the_namespace_refuses_pods_that_are_not_restricted(empty_cluster: Cluster) -> None:
    """Else the other tests would show nothing."""
    async with restricted(empty_cluster, "strict") as client:
        with pytest.raises(ApiError, match="violates PodSecurity"):
            await client.create("/api/v1/namespaces/strict/pods", pod("lax"))


async def test_a_fleet_is_installed_upgraded_and_uninstalled(
    installer: Helm, empty_cluster: Cluster
) -> None:
    """Each object is one that the API server accepts, each pod one that admission does."""
    name, chart, values = "fleet", FLEET, VALUES / "fleet.yaml"
    flags = ("-n", name, "-f", values)
    async with restricted(empty_cluster, name) as client:
        installer.run("install", RELEASE, chart, *flags)
        await await_pods(client, name, coordinator=3, shard=1)
        first = await owned(client, name)
        assert first >= {
            "statefulsets/bigfleet-coordinator",
            "statefulsets/bigfleet-shard",
            "networkpolicies/bigfleet-shard",
            "poddisruptionbudgets/bigfleet-coordinator",
        }
        changed = ("--set", "shard.replicas=3", "--set", "coordinator.join=true")
        ceilings = ("--set-json", 'shard.ceilings={"default":{"machines":50}}')
        installer.run("upgrade", RELEASE, chart, *flags, *changed, *ceilings)
        await await_pods(client, name, coordinator=3, shard=3)
        assert await owned(client, name) - first == {"configmaps/bigfleet-shard-ceilings"}
        path = f"/apis/apps/v1/namespaces/{name}/statefulsets/bigfleet-coordinator"
        [container] = (await get(client, path))["spec"]["template"]["spec"]["containers"]
        assert "--expected-shards=3" in container["args"]
        assert any(each.startswith("--join=") for each in container["args"])
        installer.run("uninstall", RELEASE, "-n", name)
        await await_pods(client, name)
        assert not await owned(client, name)
        claims = await items(client, f"/api/v1/namespaces/{name}/persistentvolumeclaims")
        assert len(claims) == 6  # a fleet's state outlives its release


@pytest.mark.parametrize(
    ("values", "pods"),
    [
        ("fleet-everything", {"coordinator": 5, "shard": 4}),
        ("fleet-simulated", {"coordinator": 1, "shard": 1, "provider": 1}),
    ],
)
async def test_every_setting_of_a_fleet_is_accepted(
    installer: Helm, empty_cluster: Cluster, values: str, pods: dict[str, int]
) -> None:
    async with restricted(empty_cluster, values) as client:
        flags = ("-n", values, "-f", VALUES / f"{values}.yaml", *WITHOUT_OTHERS[FLEET])
        installer.run("install", RELEASE, FLEET, *flags)
        await await_pods(client, values, **pods)
        installer.run("uninstall", RELEASE, "-n", values)


def of_an_earlier_release(directory: Path) -> Path:
    """The cluster's chart with a CustomResourceDefinition that lacks what was added since."""
    chart = shutil.copytree(CLUSTER, directory / "chart")
    path = chart / "files" / "crds" / "capacityrequests.yaml"
    definition = yaml.safe_load(path.read_text())
    [version] = definition["spec"]["versions"]
    del version["additionalPrinterColumns"]
    path.write_text(yaml.safe_dump(definition))
    return chart


async def columns(client: KubeClient) -> Any:
    found = await get(client, f"{CRDS}/capacityrequests.bigfleet.lucy.sh")
    [version] = found["spec"]["versions"]
    return version.get("additionalPrinterColumns")


async def test_a_member_cluster_is_installed_upgraded_and_uninstalled(
    installer: Helm, empty_cluster: Cluster, tmp_path: Path
) -> None:
    """Upgrades reach the CustomResourceDefinitions, and these outlive the release."""
    name = SYSTEM_NAMESPACE
    flags = ("-n", name, "-f", VALUES / "cluster.yaml")
    async with restricted(empty_cluster, name) as client:
        installer.run("install", RELEASE, of_an_earlier_release(tmp_path), *flags)
        await await_pods(client, name, operator=2, pod_controller=2)
        assert await columns(client) is None
        installer.run("upgrade", RELEASE, CLUSTER, *flags, "--set", "operator.replicas=1")
        await await_pods(client, name, operator=1, pod_controller=2)
        assert await columns(client)
        everything = (
            "-n",
            name,
            "-f",
            VALUES / "cluster-everything.yaml",
            *WITHOUT_OTHERS[CLUSTER],
        )
        installer.run("upgrade", RELEASE, CLUSTER, *everything)
        await await_image(client, name, "registry.example.com:5000/bigfleet:v0.1.0-rc.1")
        await _serves_the_pod_controller(
            client, installer.template_of_release(name), tmp_path / "kubeconfig"
        )
        # Waiting also for namespace bigfleet-nodes, without which it could not be installed again.
        installer.run("uninstall", RELEASE, "-n", name, "--wait")
        await await_pods(client, name)
        assert not await owned(client, name)
        rules = "/apis/rbac.authorization.k8s.io/v1/clusterroles/bigfleet-operator"
        assert await get(client, rules) is None
        assert len(await items(client, CRDS)) == 4
        # A second installation takes over what the first one left.
        installer.run("install", RELEASE, CLUSTER, *flags)
        await await_pods(client, name, operator=2, pod_controller=2)
        installer.run("uninstall", RELEASE, "-n", name, "--wait")


async def test_the_chart_takes_over_what_the_product_installed(
    installer: Helm, empty_cluster: Cluster
) -> None:
    """A cluster that was set up without Helm; unasked, nobody's objects are taken."""
    flags = ("install", RELEASE, CLUSTER, "-n", SYSTEM_NAMESPACE, "-f", VALUES / "cluster.yaml")
    async with restricted(empty_cluster, SYSTEM_NAMESPACE) as client:
        await install(client)
        with pytest.raises(HelmFailed, match="exists and cannot be imported"):
            installer.run(*flags)
        installer.run(*flags, "--take-ownership", "--force-conflicts")
        await await_pods(client, SYSTEM_NAMESPACE, operator=2, pod_controller=2)
        installer.run("uninstall", RELEASE, "-n", SYSTEM_NAMESPACE, "--wait")


async def _serves_the_pod_controller(
    client: KubeClient, objects: Sequence[Object], kubeconfig: Path
) -> None:
    """With the chart's rules alone the real pod controller writes a request for a pod."""
    [replica, *_] = [
        each for each in replicas(of_kind(objects, "Deployment")) if "pod-" in each.name
    ]
    stop = asyncio.Event()
    async with namespace(client, "work"):
        await client.create("/api/v1/namespaces/work/pods", pod("waits"))
        token = await _token(client, replica)
        _write_kubeconfig(kubeconfig, client.server, client.ca_pem, token)
        parser = LazyParser(prog="bigfleet")
        roles.add(parser.add_subparsers(dest="role", required=True))
        arguments = [each for each in replica.arguments if not each.startswith("--observe=")]
        own = [f"--observe={free_address()}", f"--kubeconfig={kubeconfig}"]
        flags = parser.parse_args([*arguments, *own])
        running = asyncio.create_task(flags.build(flags)(stop))
        try:

            async def written() -> bool:
                assert not running.done()
                path = f"{GROUP_VERSION}/namespaces/work/capacityrequests"
                return len(await items(client, path)) == 1

            await eventually(written, "the pod's CapacityRequest")
        finally:
            stop.set()
            await running
            await client.delete("/api/v1/namespaces/work/pods/waits")


async def _token(client: KubeClient, replica: Replica) -> str:
    """A token of the pod's ServiceAccount."""
    account = replica.spec["serviceAccountName"]
    accounts = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/serviceaccounts"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = yaml.safe_load(await client.create(f"{accounts}/{account}/token", body))
    token: str = answer["status"]["token"]
    return token


def _write_kubeconfig(path: Path, server: str, ca_pem: str, token: str) -> None:
    ca = path.with_suffix(".crt")
    ca.write_text(ca_pem)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "c", "cluster": {"server": server, "certificate-authority": str(ca)}}
        ],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path.write_text(yaml.safe_dump(content))
