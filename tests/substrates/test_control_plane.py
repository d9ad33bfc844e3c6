"""Two real control planes at once: each hop of a pod's life works, and is on the audit log."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import pytest
import pytest_asyncio

from bigfleet.kube.client import ApiError, KubeClient
from controlplane.request import Binaries
from loaddriver.plan.manifests import manifest_path
from loaddriver.plan.setup_manifests import DAEMON_SET_LABEL, daemon_set_body
from loaddriver.profile.archetypes import Toleration
from loaddriver.profile.instance_types import DaemonSet
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.components import FAKE_NODE_ANNOTATION, HEARTBEAT_STOPPED_LABEL
from loaddriver.substrates.local import LocalSubstrate
from loaddriver.substrates.runscope import RunScope
from tests.support.substrates import FEW_OBJECTS, PATIENCE_SECONDS
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

# kwok renews a lease of 40 s every 10.4 s at most; later than that last it would be of no use.
RENEWED_WITHIN_SECONDS = 40.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def clusters(
    binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[list[Cluster]]:
    """Clusters a and b, started in parallel."""
    directory = tmp_path_factory.mktemp("run")
    run_id = f"test-{uuid.uuid4().hex[:12]}"
    scope = RunScope.open(run_id, "test", directory / "logs", directory / "lock")
    substrate = LocalSubstrate(
        run_id, scope.data_directory, directory / "logs", binaries, {}, FEW_OBJECTS
    )
    try:
        yield await substrate.start_clusters(["a", "b"])
    finally:
        await substrate.stop()
        await scope.close()


async def test_the_clusters_are_apart(clusters: list[Cluster]) -> None:
    """A Node of one is unknown to the other, and so is the other's token."""
    first, second = clusters
    async with client(first, "admin") as a, client(second, "admin") as b:
        await add_node(a, "only-in-a")
        assert names(await b.get("/api/v1/nodes")) == []
        await a.delete("/api/v1/nodes/only-in-a")
    stolen = second.kubeconfigs["admin"].read_text().split("token: ")[1].strip()
    mixed = first.kubeconfigs["admin"].with_name("mixed")
    own = first.kubeconfigs["admin"].read_text()
    mixed.write_text(re.sub(r"token: \S+", f"token: {stolen}", own))
    async with await KubeClient.from_kubeconfig(mixed) as stranger:
        with pytest.raises(ApiError) as refusal:
            await stranger.get("/api/v1/nodes")
    assert refusal.value.status == 401


async def test_workloads_of_each_kind_run_and_every_step_is_stamped(
    clusters: list[Cluster],
) -> None:
    """As tenants do it: a Deployment, a StatefulSet and a Job, on a Node that kwok made Ready."""
    cluster = clusters[0]
    async with client(cluster, "admin") as admin, client(cluster, "load-driver") as tenant:
        await add_node(admin, "worker")
        await eventually(lambda: is_ready(admin, "worker"), seconds=PATIENCE_SECONDS)
        node = json.loads(await admin.get("/api/v1/nodes/worker"))
        assert node["status"]["allocatable"] == {"cpu": "3900m", "memory": "7Gi", "pods": "50"}
        await create_workloads(tenant)
        await eventually(lambda: all_run(tenant, 5), seconds=PATIENCE_SECONDS)
        await eventually(lambda: job_is_complete(tenant), seconds=PATIENCE_SECONDS)
        pods = json.loads(await tenant.get("/api/v1/namespaces/tenant/pods"))["items"]
        await eventually(lambda: are_logged(cluster, pods), seconds=PATIENCE_SECONDS)
    assert_stamped(list(audit_lines(cluster)), pods)


async def test_pods_that_were_there_before_their_node_are_played(clusters: list[Cluster]) -> None:
    """kwok looks for them once, when it takes the Node on: no event tells it of them again.

    Of five Nodes one has to do: kwok's look may come before its own view of the Node's lease.
    """
    early = [f"early-{number}" for number in range(5)]
    async with client(clusters[0], "admin") as admin:
        for name in early:
            bound = pod(name, "100m")
            bound["spec"]["nodeName"] = name
            await admin.create("/api/v1/namespaces/default/pods", bound)
        for name in early:
            await add_node(admin, name)

        async def played() -> bool:
            return any([await is_running(admin, name) for name in early])

        await eventually(played, seconds=PATIENCE_SECONDS)
        for name in early:
            await admin.delete(f"/api/v1/nodes/{name}")
            await admin.delete(f"/api/v1/namespaces/default/pods/{name}", {"gracePeriodSeconds": 0})


async def test_the_agents_of_a_cluster_run_on_every_node_that_they_tolerate(
    clusters: list[Cluster],
) -> None:
    """A DaemonSet that the load made gets its pods, and what happens to them is logged."""
    cluster, spot = clusters[0], {"key": "spot", "value": "true", "effect": "NoSchedule"}
    agents = [
        DaemonSet(name="logs", cpu_millicores=100, memory_mebibytes=64),
        DaemonSet(
            name="metrics",
            cpu_millicores=100,
            memory_mebibytes=64,
            tolerations=(Toleration(key="spot"),),
        ),
    ]
    async with client(cluster, "admin") as admin, client(cluster, "load-driver") as tenant:
        await add_node(admin, "plain")
        await add_node(admin, "tainted", [spot])
        for agent in agents:
            body = daemon_set_body(agent)
            await tenant.create(manifest_path(body), body)

        async def places() -> set[tuple[str, str]]:
            found = json.loads(await admin.get("/api/v1/namespaces/default/pods"))["items"]
            return {
                (pod["metadata"]["labels"][DAEMON_SET_LABEL], pod["spec"].get("nodeName", ""))
                for pod in found
                if DAEMON_SET_LABEL in pod["metadata"].get("labels", {})
                and pod["status"]["phase"] == "Running"
            }

        expected = {("logs", "plain"), ("metrics", "plain"), ("metrics", "tainted")}
        nodes = {"plain", "tainted"}

        async def settled() -> bool:
            return {place for place in await places() if place[1] in nodes} == expected

        await eventually(settled, seconds=PATIENCE_SECONDS)
        logged = {event["objectRef"]["resource"] for event in audit_lines(cluster)}
        assert "daemonsets" in logged
        for agent in agents:
            await admin.delete(f"/apis/apps/v1/namespaces/default/daemonsets/{agent.name}")
        for name in sorted(nodes):
            await admin.delete(f"/api/v1/nodes/{name}")


async def test_a_pod_without_room_waits(clusters: list[Cluster]) -> None:
    """The scheduler believes the Node's own figures, not kwok's."""
    async with client(clusters[1], "admin") as admin:
        await add_node(admin, "small")
        await eventually(lambda: is_ready(admin, "small"), seconds=PATIENCE_SECONDS)
        for name, cpu in (("fits", "3900m"), ("waits", "100m")):
            await admin.create("/api/v1/namespaces/default/pods", pod(name, cpu))
            if name == "fits":
                await eventually(lambda: is_running(admin, "fits"), seconds=PATIENCE_SECONDS)
        await eventually(lambda: is_unschedulable(admin, "waits"), seconds=PATIENCE_SECONDS)
        await admin.delete("/api/v1/namespaces/default/pods/fits")
        await eventually(lambda: is_running(admin, "waits"), seconds=PATIENCE_SECONDS)


async def test_a_labelled_node_loses_its_heartbeat_and_only_that_node(
    clusters: list[Cluster],
) -> None:
    """This is how a lost machine goes silent while all others keep on renewing."""
    key, value = HEARTBEAT_STOPPED_LABEL
    async with client(clusters[1], "admin") as admin:
        for name in ("lost", "kept"):
            await add_node(admin, name)
        for name in ("lost", "kept"):
            await eventually(lambda name=name: is_ready(admin, name), seconds=PATIENCE_SECONDS)  # type: ignore[misc]
        await admin.patch("/api/v1/nodes/lost", {"metadata": {"labels": {key: value}}})

        async def is_silent() -> bool:
            """Whether it was not renewed while the other one was."""
            last_sign, then = await renewed_at(admin, "lost"), await renewed_at(admin, "kept")

            async def kept_is_renewed() -> bool:
                return await renewed_at(admin, "kept") > then

            await eventually(kept_is_renewed, seconds=RENEWED_WITHIN_SECONDS)
            # Registered together, so theirs was due by the same time but for both their jitters.
            await asyncio.sleep(1)
            return await renewed_at(admin, "lost") == last_sign

        # Its last renewal may be under way when kwok sees the label.
        assert await is_silent() or await is_silent()


@pytest.mark.parametrize(
    ("role", "allowed", "forbidden"),
    [
        ("recorder", "/api/v1/pods", "/api/v1/secrets"),
        ("load-driver", "/apis/batch/v1/jobs", "/api/v1/secrets"),
        ("kwok", "/api/v1/nodes", "/apis/apps/v1/deployments"),
    ],
)
async def test_each_identity_may_do_its_job_and_no_more(
    clusters: list[Cluster], role: str, allowed: str, forbidden: str
) -> None:
    async with client(clusters[0], role) as identity:
        await identity.get(allowed)
        with pytest.raises(ApiError, match="Forbidden"):
            await identity.get(forbidden)
        with pytest.raises(ApiError, match="Forbidden"):
            await identity.create("/api/v1/nodes", {"metadata": {"name": "mine"}})


async def test_a_service_account_gets_a_token_that_the_server_accepts(
    clusters: list[Cluster],
) -> None:
    """Machines join with such tokens."""
    account = "/api/v1/namespaces/default/serviceaccounts/default/token"
    async with client(clusters[0], "admin") as admin:
        answer = json.loads(await admin.create(account, {"spec": {"expirationSeconds": 600}}))
        review = {"spec": {"token": answer["status"]["token"]}}
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        user = json.loads(await admin.create(path, review))["status"]["user"]["username"]
    assert user == "system:serviceaccount:default:default"


class client:
    """A connection of one role, as an async context manager."""

    def __init__(self, cluster: Cluster, role: str) -> None:
        self._kubeconfig = cluster.kubeconfigs[role]

    async def __aenter__(self) -> KubeClient:
        self._client = await KubeClient.from_kubeconfig(self._kubeconfig)
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()


async def add_node(admin: KubeClient, name: str, taints: Sequence[Mapping[str, str]] = ()) -> None:
    key, value = FAKE_NODE_ANNOTATION
    resources = {"cpu": "3900m", "memory": "7Gi", "pods": "50"}
    metadata = {
        "name": name,
        "labels": {"kubernetes.io/hostname": name},
        "annotations": {key: value},
    }
    status = {"capacity": resources, "allocatable": resources}
    spec = {"taints": [*taints]}
    await admin.create("/api/v1/nodes", {"metadata": metadata, "spec": spec, "status": status})


async def create_workloads(tenant: KubeClient) -> None:
    await tenant.create("/api/v1/namespaces", {"metadata": {"name": "tenant"}})
    apps, labels = "/apis/apps/v1/namespaces/tenant", {"app": "web"}
    spec = {"replicas": 3, "selector": {"matchLabels": labels}, "template": template(labels)}
    await tenant.create(f"{apps}/deployments", {"metadata": {"name": "web"}, "spec": spec})
    labels = {"app": "db"}
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": template(labels),
        "serviceName": "db",
    }
    await tenant.create(f"{apps}/statefulsets", {"metadata": {"name": "db"}, "spec": spec})
    job = template({"app": "sum"}, {"scaletest.bigfleet/run-seconds": "1"})
    job["spec"]["restartPolicy"] = "Never"
    await tenant.create(
        "/apis/batch/v1/namespaces/tenant/jobs",
        {
            "metadata": {"name": "sum"},
            "spec": {"completions": 2, "parallelism": 2, "template": job},
        },
    )


def template(labels: dict[str, str], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}
    metadata = {"labels": labels, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"containers": [container]}}


def pod(name: str, cpu: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"metadata": {"name": name}, "spec": spec}


def names(answer: bytes) -> list[str]:
    return [item["metadata"]["name"] for item in json.loads(answer)["items"]]


def condition(thing: dict[str, Any], kind: str) -> str | None:
    found = [c for c in thing["status"].get("conditions", []) if c["type"] == kind]
    return found[0]["status"] if found else None


async def is_ready(admin: KubeClient, node: str) -> bool:
    answer = json.loads(await admin.get(f"/api/v1/nodes/{node}"))
    return condition(answer, "Ready") == "True" and not answer["spec"].get("taints")


async def is_running(admin: KubeClient, name: str) -> bool:
    answer = json.loads(await admin.get(f"/api/v1/namespaces/default/pods/{name}"))
    return bool(answer["status"]["phase"] == "Running" and condition(answer, "Ready") == "True")


async def is_unschedulable(admin: KubeClient, name: str) -> bool:
    answer = json.loads(await admin.get(f"/api/v1/namespaces/default/pods/{name}"))
    return condition(answer, "PodScheduled") == "False"


async def all_run(tenant: KubeClient, expected: int) -> bool:
    pods = json.loads(await tenant.get("/api/v1/namespaces/tenant/pods"))["items"]
    lasting = [each for each in pods if each["metadata"]["labels"]["app"] != "sum"]
    return sum(condition(each, "Ready") == "True" for each in lasting) == expected


async def job_is_complete(tenant: KubeClient) -> bool:
    job = json.loads(await tenant.get("/apis/batch/v1/namespaces/tenant/jobs/sum"))
    return condition(job, "Complete") == "True"


async def renewed_at(admin: KubeClient, node: str) -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"
    renewed: str = json.loads(await admin.get(path))["spec"]["renewTime"]
    return renewed


async def are_logged(cluster: Cluster, pods: list[dict[str, Any]]) -> bool:
    """Whether the log has their steps: what was done shows a little before its line is written."""
    lines = list(audit_lines(cluster))
    uids = {each["metadata"]["uid"] for each in pods}
    return uids <= creations(lines).keys() & bindings(lines).keys()


def creations(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Lines by the pod's UID."""
    return {
        line["responseObject"]["metadata"]["uid"]: line
        for line in lines
        if line["verb"] == "create" and line["requestURI"].split("?")[0].endswith("/pods")
    }


def bindings(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Lines by the pod's UID."""
    return {
        line["objectRef"]["uid"]: line
        for line in lines
        if line["objectRef"].get("subresource") == "binding"
    }


def assert_stamped(lines: list[dict[str, Any]], pods: list[dict[str, Any]]) -> None:
    """Each pod has one creation and one binding, with its UID, to the microsecond, in order."""
    created, bound = creations(lines), bindings(lines)
    assert len(pods) == 7
    for each in pods:
        metadata = each["metadata"]
        creation, binding = created[metadata["uid"]], bound[metadata["uid"]]
        assert creation["responseObject"]["metadata"]["name"] == metadata["name"]
        assert "managedFields" not in creation["responseObject"]["metadata"]
        assert binding["objectRef"]["name"] == metadata["name"]
        assert binding["user"]["username"] == "system:kube-scheduler"
        assert moment(creation) < moment(binding)
    assert {line["user"]["username"].rpartition(":")[2] for line in created.values()} == {
        "replicaset-controller",
        "statefulset-controller",
        "job-controller",
    }
    assert {line["level"] for line in created.values()} == {"RequestResponse"}
    assert {line["stage"] for line in lines} == {"ResponseComplete"}


def audit_lines(cluster: Cluster) -> Iterator[dict[str, Any]]:
    """Without the one that is just being written."""
    assert cluster.audit_log is not None
    for line in cluster.audit_log.read_text().rpartition("\n")[0].splitlines():
        yield json.loads(line)


def moment(line: dict[str, Any]) -> datetime:
    stamp = line["stageTimestamp"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", stamp)
    return datetime.fromisoformat(stamp)
