"""The recorder beside a real control plane: what it writes down is what the servers did."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import pytest_asyncio

from bigfleet.api.install import install
from bigfleet.kube.client import NOT_FOUND, ApiError, KubeClient
from controlplane.request import Binaries, request_from
from controlplane.resolve import resolve
from loaddriver.plan.manifests import RACK_KEY
from loaddriver.record.clocks import receipt_lags_seconds
from loaddriver.record.live_counts import LiveCounts, NullListener
from loaddriver.record.recorder import ClusterRecorder, Observations
from loaddriver.record.rows import PodRow, build_rows
from loaddriver.record.watching import WatchTimestamps
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.components import FAKE_NODE_ANNOTATION
from loaddriver.substrates.local import LocalSubstrate
from loaddriver.substrates.runscope import RunScope
from tests.record.record_rig import labels
from tests.support.substrates import FEW_OBJECTS
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

PATIENCE_SECONDS = 90.0
PODS = 3
DEPLOYMENTS = "/apis/apps/v1/namespaces/load/deployments"
OWN_PODS = "/api/v1/namespaces/load/pods"
REQUESTS = "/apis/bigfleet.lucy.sh/v1alpha1/namespaces/load/capacityrequests"


@pytest.fixture(scope="module")
def binaries() -> Binaries:
    return resolve(request_from(os.environ), print)


class Seen(NamedTuple):
    """The same events, recorded with the audit log, without it, and with a log cut short."""

    logged: Observations
    watched: Observations
    without_last_line: Observations


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seen(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Seen]:
    """Three pods wait for a node, get it, and one of them is deleted and replaced."""
    directory: Path = tmp_path_factory.mktemp("run")
    run_id = f"test-{uuid.uuid4().hex[:12]}"
    scope = RunScope.open(run_id, "test", directory / "logs", directory / "lock")
    substrate = LocalSubstrate(
        run_id, scope.data_directory, directory / "logs", binaries, {}, FEW_OBJECTS
    )
    try:
        (cluster,) = await substrate.start_clusters(["c0"])
        yield await record(cluster)
    finally:
        await substrate.stop()
        await scope.close()


async def record(cluster: Cluster) -> Seen:
    async with (
        await KubeClient.from_kubeconfig(cluster.kubeconfigs["recorder"]) as eyes,
        await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as admin,
    ):
        await install(admin)
        recorder = ClusterRecorder(cluster.name, eyes, cluster.audit_log)
        without_log = ClusterRecorder(cluster.name, eyes, None)
        recorders = (recorder, without_log)
        running = [asyncio.create_task(each.run()) for each in recorders]
        for each in recorders:
            await asyncio.wait_for(each.started(), PATIENCE_SECONDS)
        await play(admin, recorders)
        await eventually(lambda: all(has_seen_all(each) for each in recorders))
        for each in recorders:
            await each.caught_up()
        assert recorder.nodes() == (1, 1)
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        late = ClusterRecorder(cluster.name, eyes, cut_short(cluster.audit_log))
        for each in (recorder, without_log, late):
            await each.ask_for_counts()
        return Seen(recorder.finish(), without_log.finish(), late.finish())


def has_seen_all(recorder: ClusterRecorder) -> bool:
    """Whether its watches have told of every binding and of the Node, as the log may have done."""
    pods = recorder._timestamps.pods.values()
    bound = sum(pod.bound_micros is not None for pod in pods)
    return (bound, recorder.nodes()) == (PODS + 1, (1, 1))


def cut_short(log: Path | None) -> Path:
    assert log is not None
    copy = log.with_name("cut-short.log")
    copy.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    return copy


async def play(admin: KubeClient, recorders: Sequence[ClusterRecorder]) -> None:
    async def until_all(live_counts: Callable[[LiveCounts], bool]) -> None:
        await eventually(lambda: all(live_counts(recorder.live_counts) for recorder in recorders))

    await admin.create("/api/v1/namespaces", {"metadata": {"name": "load"}})
    await admin.create(OWN_PODS, too_large())
    await admin.create(DEPLOYMENTS, deployment())
    await until_all(lambda live_counts: live_counts.backlog == PODS + 1)
    pods = msgspec.json.decode(await admin.get(OWN_PODS, {"labelSelector": "app=web"}))["items"]
    for pod in pods:
        await admin.create(REQUESTS, capacity_request(pod["metadata"]))
    await admin.create("/api/v1/nodes", fake_node())
    await until_all(lambda live_counts: live_counts.bound_total == PODS)
    deleted = f"{OWN_PODS}/{pods[0]['metadata']['name']}"
    await admin.delete(deleted)
    await until_all(lambda live_counts: live_counts.bound_total == PODS + 1)
    await until_gone(admin, deleted)  # its last breath is a line of the log, too


async def until_gone(client: KubeClient, path: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        try:
            while await client.get(path):  # noqa: ASYNC110 - the servers set no event of ours
                await asyncio.sleep(0.05)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise


def deployment() -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": "web", **labels("g1")}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }
    selector = {"matchLabels": {"app": "web"}}
    spec = {"replicas": PODS, "selector": selector, "template": template}
    return {"metadata": {"name": "web"}, "spec": spec}


def too_large() -> dict[str, Any]:
    """A pod that no node can hold."""
    resources = {"requests": {"cpu": "900"}}
    container = {"name": "main", "image": "none", "resources": resources}
    metadata = {"name": "too-large", "labels": labels()}
    return {"metadata": metadata, "spec": {"containers": [container]}}


def capacity_request(pod: dict[str, Any]) -> dict[str, Any]:
    """What the pod controller writes for a pod, as far as the recorder cares."""
    name = f"{pod['name']}-{pod['uid'][:8]}"
    spec = {"resources": {"cpu": "1"}, "priority": 0, "requirements": []}
    return {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "CapacityRequest",
        "metadata": {"name": name, "namespace": pod["namespace"]},
        "spec": spec,
    }


def fake_node() -> dict[str, Any]:
    key, value = FAKE_NODE_ANNOTATION
    resources = {"cpu": "4", "memory": "8Gi", "pods": "50"}
    node_labels = {"kubernetes.io/hostname": "n1", RACK_KEY: "r7"}
    return {
        "metadata": {"name": "n1", "labels": node_labels, "annotations": {key: value}},
        "status": {"capacity": resources, "allocatable": resources},
    }


def bound_rows(observed: Observations) -> list[PodRow]:
    return [row for row in build_rows([observed]) if row.name != "too-large"]


async def test_every_pod_is_a_row_with_both_sources_joined(seen: Seen) -> None:
    """Also the one that was deleted, and the one that replaced it."""
    rows = bound_rows(seen.logged)
    assert len(rows) == PODS + 1
    for row in rows:
        assert (row.source, row.bound_by, row.node, row.rack) == ("audit", "scheduler", "n1", "r7")
        assert sum(row.hops_micros().values()) == round(row.waited_seconds * 1e6)
    assert sum(row.deleted_micros is not None for row in rows) == 1
    assert sum(row.seen_micros is not None for row in rows) == PODS
    assert sorted(row.node_was_ready is True for row in rows) == [False] * PODS + [True]


async def test_without_a_log_the_watch_gives_the_same_rows_a_little_later(seen: Seen) -> None:
    """All that is missing is who bound a pod; the source is said."""
    by_uid = {row.uid: row for row in build_rows([seen.logged])}
    rows = build_rows([seen.watched])
    assert {row.uid for row in rows} == set(by_uid)
    for row in rows:
        logged = by_uid[row.uid]
        assert (row.source, row.bound_by) == ("watch", "")
        assert (row.node, row.rack, row.node_was_ready) == (
            logged.node,
            logged.rack,
            logged.node_was_ready,
        )
        assert (row.seen_micros is None) == (logged.seen_micros is None)
        assert abs(row.waited_seconds - logged.waited_seconds) < 10


async def test_the_log_alone_knows_node_rack_and_readiness(seen: Seen) -> None:
    """Nothing that a watch loses can change a number."""
    blind = replace(seen.logged, watch=WatchTimestamps(NullListener()))
    assert build_rows([blind]) == build_rows([seen.logged])


async def test_nothing_of_the_log_was_lost(seen: Seen) -> None:
    """Each line is read, each request is there once, and the server counts no more than we."""
    audit = seen.logged.audit
    assert audit is not None
    assert (audit.undecodable, audit.without_uid) == (0, 0)
    assert audit.succeeded["create pods"] == PODS + 2
    assert audit.succeeded["create pods/binding"] == PODS + 1
    assert list(audit.nodes_created) == ["n1"]
    assert seen.logged.audit_events_lost == 0


async def test_a_line_that_never_arrived_is_counted_as_lost(seen: Seen) -> None:
    """The server's own count stands against the number of lines that were read."""
    assert seen.without_last_line.audit_events_lost == 1


async def test_the_schedulers_words_are_kept_for_pods_without_a_node(seen: Seen) -> None:
    """And for those only."""
    for observed in (seen.logged, seen.watched):
        assert [row.uid for row in build_rows([observed]) if row.bound_micros is None] == list(
            observed.pending
        )
        (said,) = observed.pending.values()
        assert "Insufficient cpu" in said


async def test_watches_without_a_gap_say_so(seen: Seen) -> None:
    """Each lists once; CapacityRequests are watched only where no log tells of them."""
    assert (seen.logged.watches, seen.logged.watch_listed, seen.logged.watch_gaps) == (2, 2, 0)
    assert (seen.watched.watches, seen.watched.watch_listed, seen.watched.watch_gaps) == (3, 3, 0)


async def test_the_watch_agrees_with_the_log(seen: Seen) -> None:
    """Receipt comes a little later than the stamp, by the same wall clock."""
    lags = receipt_lags_seconds([seen.logged])
    assert len(lags) == 2 * (PODS + 1) + 1
    assert all(-1 < lag < 10 for lag in lags)
