"""Which of the pods that have requested a machine have a Node that joins nominated for them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from bigfleet.controllers.pod_controller.events import PodName
from bigfleet.controllers.pod_controller.existing_requests import RequestKey
from bigfleet.controllers.pod_controller.nodes import Node
from bigfleet.controllers.pod_controller.nominations import (
    NOMINATION_SECONDS,
    Candidate,
    Nominations,
)
from bigfleet.controllers.pod_controller.occupancy import Occupancy
from bigfleet.controllers.pod_controller.shapes import Shape
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.need import Taint
from tests.controllers.pod_rig import (
    ZONE,
    affinity_terms,
    anti_affinity_terms,
    cluster,
    node,
    peers,
    shape,
)
from tests.support.waiting import eventually


def chosen(there: Occupancy, joins: Node, *waiting: Shape, asked: bool = True) -> list[str]:
    """The numbers of the `waiting` pods, the oldest first, that it is nominated for; `asked`: they
    have requested a machine.
    """
    candidates: Sequence[Candidate] = [
        Candidate(RequestKey("team", str(number)), PodName("team", str(number), ""), each, asked)
        for number, each in enumerate(waiting)
    ]
    nobody = cast("Any", None)  # nothing is asked of the API server
    nominations = Nominations(nobody, there, lambda: 0.0, lambda: candidates)
    return [each.key.name for each in nominations.fitting(joins)]


CACHE: dict[str, Any] = {"metadata": {"labels": {"app": "cache"}}}
MATE = shape(**CACHE)


def confined(cpu: str) -> Shape:
    """A pod that must run in the zone of the cache."""
    return shape(cpu, **CACHE, **affinity_terms(peers(ZONE, "cache")))


def zone_with_cache(joins: Node, *pods: tuple[Shape, str, int]) -> Occupancy:
    """The Node `joins`, and one with the cache in zone a."""
    return cluster([node("old", zone="a"), joins], (MATE, "old", 1), *pods)


def test_the_oldest_pods_that_fit_together_are_chosen() -> None:
    """A large one does not keep a smaller one from what it leaves."""
    joins = node("new", cpu="4", zone="a")
    waiting = [confined("3"), confined("2"), confined("1")]
    assert chosen(zone_with_cache(joins), joins, *waiting) == ["0", "2"]


def test_pods_that_may_run_anywhere_are_left_out() -> None:
    """Any other machine helps those, and what is kept for them nobody else can use."""
    joins = node("new", cpu="4", zone="a")
    assert chosen(zone_with_cache(joins), joins, shape("1"), confined("2")) == ["1"]


def test_a_pod_that_takes_most_of_the_node_is_chosen() -> None:
    """Smaller pods would fill it before a large one is tried again, and few others are as large."""
    joins = node("new", cpu="4", zone="a")
    assert chosen(cluster([joins]), joins, shape("1"), shape("3"), shape("3")) == ["1"]


def test_a_pod_that_has_requested_a_machine_and_takes_much_of_the_node_is_chosen() -> None:
    """A machine is larger than the pods that requested it, and small pods fill the emptiest Node
    first: in mixed-50 two pods of 28 CPUs waited for 74 s, while others filled theirs of 64.
    """
    joins = node("new", cpu="8", zone="a")
    waiting = [shape("2"), shape("3"), shape("3"), shape("3")]
    assert chosen(cluster([joins]), joins, *waiting) == ["1", "2"]
    assert chosen(cluster([joins]), joins, *waiting, asked=False) == []


def test_before_they_request_a_machine_only_pods_that_take_most_of_the_node_are_chosen() -> None:
    """One was acquired for them when they came. In mixed-50 others filled it, and a pod of 28 CPUs
    waited for 46 s without having requested another.
    """
    joins = node("new", cpu="4", zone="a")
    apart = shape("1", **anti_affinity_terms(peers(HOSTNAME_LABEL)))
    waiting = [apart, confined("1"), shape("3"), shape("3")]
    assert chosen(zone_with_cache(joins), joins, *waiting, asked=False) == ["2"]


def test_of_pods_that_keep_apart_by_node_the_oldest_is_chosen() -> None:
    """It may not run where others do, and of two that one Node is kept for neither could."""
    apart = shape("1", **anti_affinity_terms(peers(HOSTNAME_LABEL)))
    joins = node("new", cpu="4")
    assert chosen(cluster([joins]), joins, apart, apart, shape("1")) == ["0"]


def test_a_node_in_another_domain_helps_nobody() -> None:
    """The pods must run beside the cache."""
    elsewhere = node("new", cpu="4", zone="b")
    assert chosen(zone_with_cache(elsewhere), elsewhere, confined("3")) == []


def test_a_gang_of_which_no_pod_runs_begins_on_any_node() -> None:
    """The others follow into its domain."""
    joins = node("new", cpu="4", zone="b")
    assert chosen(cluster([joins]), joins, confined("3")) == ["0"]


def test_room_is_left_for_the_daemons_that_run_on_other_nodes() -> None:
    """They are about to come; what already runs there is not counted twice."""
    daemon = shape("1", owner="DaemonSet")
    joins = node("new", cpu="4", zone="a")
    alone = zone_with_cache(joins, (daemon, "old", 1))
    assert chosen(alone, joins, confined("4"), confined("3")) == ["1"]
    with_its_own = zone_with_cache(joins, (daemon, "old", 1), (daemon, "new", 1))
    assert chosen(with_its_own, joins, confined("3")) == ["0"]


def test_a_cordoned_node_is_nobodys() -> None:
    """Nor is one that is being reclaimed."""
    joins = node("new", cpu="4", zone="a", cordoned=True)
    assert chosen(zone_with_cache(joins), joins, confined("1")) == []


def test_a_node_that_a_cloud_controller_has_not_initialized_yet_is_kept_for_pods() -> None:
    """Its taint goes, as those of Kubernetes do, and by then others would have filled it."""
    taint = Taint("node.cloudprovider.kubernetes.io/uninitialized", "true", "NoSchedule")
    joins = node("new", cpu="4", zone="a", taints=(taint,))
    assert chosen(zone_with_cache(joins), joins, confined("1")) == ["0"]


@pytest.mark.parametrize("ends", ["bound", "nominated"])
async def test_what_happens_while_another_nomination_is_withdrawn_counts(ends: str) -> None:
    """Each withdrawal takes a request's time, in which a pod may be bound, or nominated for a Node
    that has joined.
    """
    joins, newer, asked = node("new", zone="a"), node("newer", zone="a"), list[str]()

    class Api:
        async def patch(self, path: str, *_: Any) -> bytes:
            asked.append(path)
            if len(asked) == 3 and ends == "bound":  # the first withdrawal, after two nominations
                for each in candidates:
                    nominations.forget(each.key)
            elif len(asked) == 3:
                nominations.on_node(None, newer)
                await eventually(lambda: len(asked) == 5, "two further nominations")
            return b""

    candidates = [
        Candidate(RequestKey("team", name), PodName("team", name, ""), confined("2"), asked=True)
        for name in ("one", "two")
    ]
    now = [0.0]
    there = cluster([node("old", zone="a"), joins, newer], (MATE, "old", 1))
    nominations = Nominations(cast("Any", Api()), there, lambda: now[0], lambda: candidates)
    nominations.on_node(None, joins)
    running = asyncio.create_task(nominations.run())
    await eventually(lambda: len(asked) == 2, "both nominations")
    now[0] = NOMINATION_SECONDS
    await nominations.withdraw_vain()
    running.cancel()
    assert len(asked) == (3 if ends == "bound" else 5)


class RecordingApi:
    """An API server that takes every patch; `patched` are their paths."""

    def __init__(self) -> None:
        self.patched: list[str] = []

    async def patch(self, path: str, *_: Any) -> bytes:
        self.patched.append(path)
        return b""


async def test_a_nomination_ends_once_others_have_filled_the_node() -> None:
    """The pod would wait for half a minute for room that is gone, and keep the rest from others."""
    api = RecordingApi()
    patched = api.patched
    apart = shape("2", **anti_affinity_terms(peers(HOSTNAME_LABEL)))
    waiting = {"large": shape("3"), "apart": apart, "kept": shape("3")}
    candidates = [
        Candidate(RequestKey("team", name), PodName("team", name, ""), each, asked=True)
        for name, each in waiting.items()
    ]
    joins = [node(name, cpu="4") for name in ("n1", "n2", "n3")]
    there, small = cluster(joins), shape("1")
    nominations = Nominations(cast("Any", api), there, lambda: 0.0, lambda: candidates)
    running = asyncio.create_task(nominations.run())
    for each in joins:
        nominations.on_node(None, each)
    await eventually(lambda: len(patched) == len(joins), "a pod for each Node")
    await nominations.withdraw_vain()
    assert len(patched) == len(joins)
    there.placed = cluster(joins, (small, "n1", 2), (apart, "n2", 1), (small, "n3", 1)).placed
    await nominations.withdraw_vain()
    running.cancel()
    assert [path.split("/")[-2] for path in patched[3:]] == ["large", "apart"]


async def test_a_node_that_becomes_ready_is_nominated_for_no_more_pods_than_fit() -> None:
    """It was nominated for some when it joined, and kube-scheduler keeps the room of all others: of
    too many it places none, and the Node stays empty for half a minute.
    """
    api = RecordingApi()
    patched = api.patched
    waiting = [
        Candidate(RequestKey("team", name), PodName("team", name, ""), shape("2"), asked=True)
        for name in ("one", "two", "three", "four")
    ]
    now, joins = [0.0], node("new", cpu="5")
    nominations = Nominations(cast("Any", api), cluster([joins]), lambda: now[0], lambda: waiting)
    running = asyncio.create_task(nominations.run())
    nominations.on_node(None, joins)
    await eventually(lambda: len(patched) == 2, "the first two pods' nomination")
    assert nominations.fitting(joins) == []
    # Once the watch tells that kube-scheduler has dropped them, they come first again.
    now[0] = NOMINATION_SECONDS / 2
    assert [each.key.name for each in nominations.fitting(joins)] == ["one", "two"]
    del waiting[0]
    assert [each.key.name for each in nominations.fitting(joins)] == ["two"]
    running.cancel()


async def test_a_nomination_is_kept_for_half_a_minute_from_when_the_node_is_ready() -> None:
    """It joins before, and until it is ready kube-scheduler cannot follow the nomination."""
    api, now, joins = RecordingApi(), [0.0], node("new", cpu="6")
    first, second, third = (
        Candidate(RequestKey("team", name), PodName("team", name, ""), shape("2"), asked=True)
        for name in ("first", "second", "third")
    )
    waiting, booting = [first], replace(joins, ready=False)
    there = cluster([booting])
    nominations = Nominations(cast("Any", api), there, lambda: now[0], lambda: waiting)
    running = asyncio.create_task(nominations.run())
    nominations.on_node(None, booting)
    await eventually(lambda: len(api.patched) == 1, "the first nomination")
    waiting[:] = [second]  # by now the watch has told of the first
    now[0] = NOMINATION_SECONDS - 1
    there.nodes["new"] = joins
    nominations.on_node(booting, joins)
    await eventually(lambda: len(api.patched) == 2, "the second nomination")
    now[0] = NOMINATION_SECONDS
    await nominations.withdraw_vain()
    assert len(api.patched) == 2
    # Only the first time: a Node that becomes ready again and again keeps nobody for good.
    waiting[:] = [third]
    nominations.on_node(booting, joins)
    await eventually(lambda: len(api.patched) == 3, "the third nomination")
    now[0] = 2 * NOMINATION_SECONDS - 1
    await nominations.withdraw_vain()
    assert [path.split("/")[-2] for path in api.patched[3:]] == ["first", "second"]
    running.cancel()


async def test_a_node_whose_nomination_kube_scheduler_has_dropped_is_nominated_again() -> None:
    """Its attempt may have begun before the Node was ready. All of them last as long as one."""
    api, now, joins = RecordingApi(), [0.0], node("new", cpu="4")
    key, other = RequestKey("team", "p"), RequestKey("team", "q")
    waiting = [Candidate(key, PodName("team", "p", ""), shape("3"), asked=True)]
    nominations = Nominations(cast("Any", api), cluster([joins]), lambda: now[0], lambda: waiting)
    running = asyncio.create_task(nominations.run())
    nominations.on_node(None, joins)
    await eventually(lambda: len(api.patched) == 1, "the nomination")
    nominations.observe(key, "")  # the watch is late: that was before
    nominations.observe(key, "new")
    nominations.observe(other, "")
    now[0] = NOMINATION_SECONDS - 1
    nominations.observe(key, "")
    await eventually(lambda: len(api.patched) == 2, "the second nomination")
    nominations.observe(key, "")
    nominations.observe(key, "new")
    now[0] = NOMINATION_SECONDS
    await nominations.withdraw_vain()
    running.cancel()
    assert len(api.patched) == 3


async def test_a_nomination_that_is_still_being_written_is_not_withdrawn() -> None:
    """The withdrawal would change nothing, and the pod stay nominated for a Node that is full."""
    answered, patched = asyncio.Event(), list[str]()

    class Api:
        async def patch(self, path: str, *_: Any) -> bytes:
            patched.append(path)
            await answered.wait()
            return b""

    joins = node("new", cpu="4")
    candidate = Candidate(
        RequestKey("team", "large"), PodName("team", "large", ""), shape("3"), asked=True
    )
    there = cluster([joins])
    nominations = Nominations(cast("Any", Api()), there, lambda: 0.0, lambda: [candidate])
    running = asyncio.create_task(nominations.run())
    nominations.on_node(None, joins)
    await eventually(lambda: len(patched) == 1, "the nomination")
    there.placed = cluster([joins], (shape("2"), "new", 1)).placed
    await nominations.withdraw_vain()
    assert len(patched) == 1
    answered.set()

    async def withdrawn() -> bool:
        await nominations.withdraw_vain()
        return len(patched) == 2

    await eventually(withdrawn, "the nomination to be withdrawn once it is written")
    running.cancel()
