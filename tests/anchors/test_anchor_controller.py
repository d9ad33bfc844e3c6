"""Anchors on a real control plane with kube-scheduler, checked by the audit log."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from bigfleet.kube.client import KubeClient
from controlplane.request import Binaries
from loaddriver.anchors import controller
from loaddriver.anchors.controller import AnchorController
from loaddriver.anchors.outcomes import GroupOutcome
from loaddriver.errors import InfrastructureError
from loaddriver.record.cluster_watch import ClusterWatch
from loaddriver.run.measurement import AnchorControllers
from loaddriver.run.recorders import ClusterRecorders
from loaddriver.substrates.local import LocalSubstrate
from loaddriver.substrates.runscope import RunScope
from tests.anchors.anchor_cluster import NO_SCHEDULER, PODS, Racks, gang_pod, interfering
from tests.support.substrates import FEW_OBJECTS
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster_of_racks(
    binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Racks]:
    """Racks r1 (n1, n2: 2 CPUs each, type big) and r2 (n3: 3 CPUs, type small)."""
    logs = Path(tmp_path_factory.mktemp("anchors"))
    scope = RunScope.open(f"anchors-{uuid.uuid4().hex[:8]}", "test", logs, logs / "lock")
    environment = dict(os.environ)
    substrate = LocalSubstrate(
        scope.run_id, scope.data_directory, logs, binaries, environment, FEW_OBJECTS
    )
    try:
        [cluster] = await substrate.start_clusters(["a"])
        async with (
            await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as admin,
            await KubeClient.from_kubeconfig(cluster.kubeconfigs["recorder"]) as recorder,
        ):
            racks = Racks(cluster, admin, recorder)
            await racks.add_nodes({"n1": ("r1", "big", 2), "n2": ("r1", "big", 2)})
            await racks.add_nodes({"n3": ("r2", "small", 3)})
            yield racks
    finally:
        await substrate.stop()
        await scope.close()


@pytest_asyncio.fixture(loop_scope="module")
async def racks(cluster_of_racks: Racks) -> AsyncIterator[Racks]:
    """The racks without pods, cleaned up after each test."""
    yield cluster_of_racks
    await cluster_of_racks.clear()


@asynccontextmanager
async def running(
    racks: Racks, client: KubeClient, groups: Mapping[str, int]
) -> AsyncIterator[AnchorController]:
    """A running anchor controller; afterwards its outcomes are final."""
    anchors, stop = AnchorController(client, "a", groups), asyncio.Event()
    task = asyncio.create_task(anchors.run(stop))
    watch = ClusterWatch(racks.recorder, [anchors], batch_seconds=0.2)
    following = [asyncio.create_task(each) for each in watch.followers()]
    try:
        yield anchors
    finally:
        stop.set()
        for each in following:
            each.cancel()
        await asyncio.wait(following)
        await task


async def until_outcome(anchors: AnchorController, group: str, outcome: str) -> GroupOutcome:
    async def there() -> bool:
        return by_group(anchors)[group].outcome == outcome

    await eventually(there)
    return by_group(anchors)[group]


async def until_reason(anchors: AnchorController, group: str, start: str) -> None:
    async def given() -> bool:
        return by_group(anchors)[group].reason.startswith(start)

    await eventually(given)


def by_group(anchors: AnchorController) -> dict[str, GroupOutcome]:
    return {each.group: each for each in anchors.outcomes()}


async def test_each_gang_is_anchored_or_scheduler_first_or_no_room(racks: Racks) -> None:
    """The anchor leads its gang to a rack that holds it; only kube-scheduler binds."""
    await racks.add_pods("first-0", "first-1", group="first", types=("small",))
    await racks.until_bound("first-0", "first-1")
    led = [f"led-{index}" for index in range(4)]
    async with (
        await racks.load_driver() as client,
        running(racks, client, {"first": 2, "led": 4, "huge": 5, "absent": 2}) as anchors,
    ):
        await racks.add_pods(*led, group="led", held=True)
        await racks.add_pods("huge-0", group="huge", held=True)
        nominated = await racks.until_nominated(*led)
        await racks.release(*led)
        await racks.until_bound(*led)
        await until_outcome(anchors, "led", "anchored")
        await until_reason(anchors, "huge", "no rack fits all 5 pods: the largest, r")
    nodes, outcomes = await racks.bound(), by_group(anchors)
    assert {name: nodes[name] for name in led} == nominated
    assert sorted(nominated.values()) == ["n1", "n1", "n2", "n2"]
    binders = await racks.binders(*nodes)
    assert {binder for name in nodes for binder in binders[name]} == {"system:kube-scheduler"}
    assert {name: each.outcome for name, each in outcomes.items()} == {
        "absent": "no-room",
        "first": "scheduler-first",
        "huge": "no-room",
        "led": "anchored",
    }
    assert outcomes["led"].rack == "r1"
    assert outcomes["first"].rack == "r2"
    assert outcomes["absent"].reason == "none of its pods was observed pending"


async def test_pods_that_the_scheduler_has_not_tried_are_left_to_it(racks: Racks) -> None:
    body = gang_pod("fresh-0", group="fresh", scheduler=NO_SCHEDULER)
    async with await racks.load_driver() as client, running(racks, client, {"fresh": 1}) as anchors:
        await racks.admin.create(PODS, body)
        await until_reason(anchors, "fresh", "kube-scheduler has not yet tried 1 of its pods")
    assert (await racks.bound(), await racks.nominated()) == ({}, {})


@pytest.mark.parametrize("held", [True, False])
async def test_an_anchor_cannot_split_a_gang_that_the_scheduler_is_placing(
    racks: Racks, held: bool
) -> None:
    """The anchor is decided for one rack while kube-scheduler binds in another. An anchor that was
    bound by the harness would be there before anybody could see that the gang has begun elsewhere.

    The pods differ in what they accept, so that the moment can be held still.
    """

    moments: list[str] = []

    async def scheduler_is_first() -> None:
        moments.append("the anchor was decided, and nothing is bound")
        await racks.uncordon("n1", "n2")
        await racks.until_bound("gang-1", "gang-2")

    await racks.cordon("n1", "n2", "n3")
    try:
        async with interfering(racks) as client:
            client.before = scheduler_is_first
            async with running(racks, client, {"gang": 3}) as anchors:
                first = {"held": True} if held else {"scheduler": NO_SCHEDULER}
                await racks.add_pods("gang-0", group="gang", types=("small",), **first)
                await racks.tried("gang-0")
                await racks.add_pods("gang-1", "gang-2", group="gang", types=("big",))
                await racks.until_unschedulable("gang-0", "gang-1", "gang-2")
                await racks.uncordon("n3")
                found = await until_outcome(anchors, "gang", "scheduler-first")
                assert moments
                if held:
                    await racks.release("gang-0")
                await racks.until_unschedulable("gang-0")
        assert found.rack == "r1"
        assert set((await racks.bound()).values()) <= {"n1", "n2"}
    finally:
        await racks.uncordon("n1", "n2", "n3")


async def test_nominations_that_are_not_followed_expire_and_free_their_capacity(
    racks: Racks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rack reserved for a gang that does not come would stay empty."""
    monkeypatch.setattr(controller, "_NOMINATION_TIMEOUT_SECONDS", 1.0)
    async with (
        await racks.load_driver() as client,
        running(racks, client, {"stays": 2}) as anchors,
    ):
        await racks.add_pods("stays-0", "stays-1", group="stays", held=True)
        await racks.until_nominated("stays-0", "stays-1")
        await racks.cordon("n1", "n2", "n3")
        try:

            async def withdrawn() -> bool:
                return not await racks.nominated()

            await eventually(withdrawn)
        finally:
            await racks.uncordon("n1", "n2", "n3")
    assert by_group(anchors)["stays"].outcome == "no-room"


async def test_a_nomination_whose_response_was_lost_counts(racks: Racks) -> None:
    async with interfering(racks) as client:
        client.loses_answer = True
        async with running(racks, client, {"lost": 2}) as anchors:
            await racks.add_pods("lost-1", "lost-0", group="lost", held=True)
            nominated = await racks.until_nominated("lost-0", "lost-1")
            await racks.release("lost-0", "lost-1")
            await until_outcome(anchors, "lost", "anchored")
            await racks.until_bound("lost-0", "lost-1")
    assert await racks.bound() == nominated


async def test_a_pod_recreated_under_the_same_name_is_not_nominated(
    racks: Racks,
) -> None:
    """The nomination carries the UID of the deleted pod."""

    async def replace_it() -> None:
        await racks.admin.delete(f"{PODS}/again-0", {"gracePeriodSeconds": 0})
        await racks.add_pods("again-0", group="other", held=True)

    async with interfering(racks) as client:
        client.before = replace_it
        async with running(racks, client, {"again": 1}) as anchors:
            await racks.add_pods("again-0", group="again", held=True)

            async def refused() -> bool:
                return "failed" in by_group(anchors)["again"].reason

            await eventually(refused)
    assert await racks.nominated() == {}
    assert by_group(anchors)["again"].outcome == "no-room"


async def test_anchors_use_the_watches_of_a_recorder(racks: Racks) -> None:
    """As in a run: the recorder's identity watches, the load driver's nominates."""
    recorders, anchoring = ClusterRecorders(), AnchorControllers()
    await anchoring.prepare([racks.cluster], {("a", "shared"): 2, ("elsewhere", "shared"): 2})
    try:
        await recorders.start([racks.cluster], anchoring.readers)
        anchoring.start()
        await racks.add_pods("shared-0", group="shared", held=True)
        await racks.until_nominated("shared-0")
        await racks.release("shared-0")
        await racks.until_bound("shared-0")
    finally:
        await anchoring.stop()
        [observed] = await recorders.finish()
    [outcome] = anchoring.outcomes()
    assert outcome.outcome == "anchored"
    assert (observed.watches, observed.watch_listed) == (2, 2)
    assert {each.name for each in observed.watch.nodes.values()} == {"n1", "n2", "n3"}
    assert observed.watch.pods == {}, "a pod that the load did not make"


async def test_missing_rights_are_named_before_anything_is_done(racks: Racks) -> None:
    with pytest.raises(InfrastructureError, match="need: patch pods/status; grant them"):
        await AnchorController(racks.recorder, "a", {"g": 1}).run(asyncio.Event())
