"""A release without nested clusters measures the cluster that it is in, and leaves it as it was."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from bigfleet.kube.client import KubeClient
from loaddriver.substrates.applying import apply
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.existing.objects import OWN_NAMESPACE, manifests
from loaddriver.substrates.existing.release_end import end_release
from tests.charts.helm_rig import SCALETEST, VALUES, Helm
from tests.support.clusters import get, namespace
from tests.support.existing_clusters import content
from tests.support.scaletest import TINY, Scaletest, end_all
from tests.support.shared_clusters import SharedClusters
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

RELEASE, JOB = "st", "st-runner"
FLAGS = ("-f", VALUES / "scaletest.yaml", "-f", VALUES / "scaletest-host.yaml")
# As kube-proxy and network plugins are.
EVERYWHERE = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "everywhere"},
    "spec": {
        "selector": {"matchLabels": {"app": "everywhere"}},
        "template": {
            "metadata": {"labels": {"app": "everywhere"}},
            "spec": {
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "c", "image": "none"}],
            },
        },
    },
}


@dataclass(frozen=True)
class Release:
    """What is installed; `client` is an administrator, `account` the runner's kubeconfig."""

    host: Cluster
    client: KubeClient
    namespace: str
    account: Path

    async def content(self) -> dict[str, list[str]]:
        """All that the cluster has."""
        return await asyncio.to_thread(content, self.host)

    async def arguments(self) -> list[str]:
        """The runner's, without `run` and where it writes its results."""
        job = await get(self.client, f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{JOB}")
        [container] = job["spec"]["template"]["spec"]["containers"]
        return [each for each in container["args"][1:] if not each.startswith("--results=")]


@pytest.fixture(autouse=True)
def no_run_goes_on() -> Iterator[None]:
    """A failing test ends its runs as well."""
    yield
    end_all()


@pytest.fixture
def host(helm: Helm, shared_clusters: SharedClusters) -> Cluster:
    """The cluster that the chart is installed in; `helm` may skip first."""
    assert helm
    return shared_clusters.of("charts")["charts"]


@pytest_asyncio.fixture
async def release(helm: Helm, host: Cluster, tmp_path: Path) -> AsyncIterator[Release]:
    """A release in a namespace of its own, beside a DaemonSet of the cluster's."""
    kubeconfig = host.kubeconfigs["admin"]
    installer = replace(helm, access=("--kubeconfig", str(kubeconfig)))
    # Another for each test: its claim keeps it, as nothing here removes finalizers.
    own = f"host-{uuid.uuid4().hex[:8]}"
    async with (
        await KubeClient.from_kubeconfig(kubeconfig) as client,
        namespace(client, own),
        namespace(client, f"{own}-agents") as agents,
    ):
        await client.create(f"/apis/apps/v1/namespaces/{agents}/daemonsets", EVERYWHERE)
        installer.run("install", RELEASE, SCALETEST, "-n", own, *FLAGS)
        try:
            await eventually(partial(_has_pods, client, own), "the pods of the release")
            yield Release(host, client, own, await _account(client, own, tmp_path))
        finally:
            # Nothing runs the pod of its hook here.
            installer.run("uninstall", RELEASE, "-n", own, "--no-hooks")


async def _has_pods(client: KubeClient, own: str) -> bool:
    found = (await get(client, f"/api/v1/namespaces/{own}/pods"))["items"]
    return len(found) == 2


async def _account(client: KubeClient, own: str, folder: Path) -> Path:
    """A kubeconfig as the harness makes it in the runner's pod, with files for CA and token."""
    accounts = f"/api/v1/namespaces/{own}/serviceaccounts/{JOB}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = json.loads(await client.create(accounts, body))
    (folder / "token").write_text(answer["status"]["token"])
    (folder / "ca.crt").write_text(client.ca_pem)
    name = "in-cluster"
    content: dict[str, Any] = {
        "clusters": [
            {"name": name, "cluster": {"server": client.server, "certificate-authority": "ca.crt"}}
        ],
        "users": [{"name": name, "user": {"tokenFile": "token"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


async def test_a_run_needs_no_more_rights_than_the_chart_grants_and_leaves_nothing(
    release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do pods stay that DaemonSets of the cluster had on its Nodes."""
    monkeypatch.setenv("KUBECONFIG", str(release.account))
    before = await release.content()
    (tmp_path / "tmp").mkdir()
    arguments = (*await release.arguments(), *TINY)
    run = Scaletest(tmp_path / "results", *arguments, tempdir=tmp_path / "tmp")
    assert await asyncio.to_thread(run.exit_code) in (0, 3, 5), run.output
    pods = run.summary()["pods"]
    assert pods["bound"] + pods["withdrawn"] == pods["created"] >= 40, run.output
    assert not _added(before, await release.content())


async def test_the_end_of_a_release_removes_what_its_runner_could_not(release: Release) -> None:
    """First it ends the runner, so that nothing new is made; it has the rights of the account."""
    before = await release.content()
    await apply(release.client, manifests("run", f"pod {release.namespace}/{JOB}-x7k2p"))
    said = await _end(release)
    assert f"removing namespaces/{OWN_NAMESPACE}" in "".join(said)
    assert said[-1].startswith("the run has ended")
    after = await release.content()
    assert not _added(before, after)
    assert f"{release.namespace}/{JOB}" not in after["/apis/batch/v1/jobs"]
    assert not any(each.startswith(f"{release.namespace}/{JOB}-") for each in after["/api/v1/pods"])


async def test_the_end_of_a_release_leaves_another_run_alone(release: Release) -> None:
    """Such a release was refused by its runner, and is uninstalled while the other run goes on."""
    await apply(release.client, manifests("run", "pod elsewhere/st-runner-x7k2p"))
    try:
        [said] = await _end(release)
        assert "is that of run run, started by pod elsewhere/st-runner-x7k2p, and stays" in said
        found = await get(release.client, f"/api/v1/namespaces/{OWN_NAMESPACE}")
        assert found["status"]["phase"] == "Active"
    finally:
        await apply(release.client, manifests("run", f"pod {release.namespace}/{JOB}-x7k2p"))
        await _end(release)


def _added(before: dict[str, list[str]], after: dict[str, list[str]]) -> set[str]:
    """What was not there before; what other tests had may still be going."""
    return {each for path in after for each in set(after[path]) - set(before[path])}


async def _end(release: Release) -> list[str]:
    said: list[str] = []
    async with await KubeClient.from_kubeconfig(release.account) as client:
        await end_release(client, release.namespace, JOB, said.append)
    return said
