"""Which Nodes can be given back at the least cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bigfleet.controllers.pod_controller.disruption import NodeDisruption, review
from bigfleet.controllers.pod_controller.nodes import Node
from bigfleet.controllers.pod_controller.shapes import Shape
from bigfleet.model.labels import HOSTNAME_LABEL
from tests.controllers.pod_rig import (
    ZONE,
    affinity_terms,
    anti_affinity_terms,
    cluster,
    node,
    peers,
    shape,
    spread,
)
from tests.support.cpu_time import slowness

WEB, BATCH, DAEMON = shape(), shape(owner="Job"), shape(owner="DaemonSet")


def _review(
    nodes: Sequence[Node],
    *pods: tuple[Shape, str, int],
    most: int = 10,
    only: Sequence[str] = (),
    preferred: Sequence[str] = (),
    reclaiming: Sequence[str] = (),
) -> list[NodeDisruption]:
    return review(cluster(nodes, *pods).snapshot(), most, only, preferred, reclaiming)


def _names(verdicts: Sequence[NodeDisruption]) -> str:
    return " ".join(verdict.node for verdict in verdicts)


def _nodes(*names: str, cpu: str = "8") -> list[Node]:
    return [node(name, cpu) for name in names]


def test_empty_nodes_go_first_then_fewest_pods_then_those_with_a_jobs_pods() -> None:
    nodes = [*_nodes("job", "three", "one", "empty"), node("others", "64", ours=False)]
    pods = [(BATCH, "job", 1), (WEB, "three", 3), (WEB, "one", 1), (DAEMON, "empty", 2)]
    found = _review(nodes, *pods)
    assert _names(found) == "empty one three job"
    assert [(v.pods, v.cost, v.fits) for v in found[:2]] == [(0, 0.0, True), (1, 1.0, True)]


def test_reported_nodes_can_all_be_drained_together() -> None:
    """Six CPUs are free in all: the pods of two Nodes fit, not those of three."""
    nodes = _nodes("a", "b", "c", "full")
    pods = [(WEB, "a", 2), (WEB, "b", 3), (WEB, "c", 4), (WEB, "full", 7)]
    assert _names(_review(nodes, *pods)) == "a b"


def test_who_is_the_last_to_hold_others_up_stays() -> None:
    """The only Node cannot go while anything runs on it."""
    assert _review(_nodes("a"), (WEB, "a", 1)) == []
    assert _names(_review(_nodes("a"), (DAEMON, "a", 1))) == "a"


def test_a_node_that_kube_scheduler_may_not_use_accepts_no_pods() -> None:
    others = [
        node("cordoned", cordoned=True),
        node("unready", ready=False),
        node("leaving", reclaiming=True),
        node("foreign-but-full", "1", ours=False),
    ]
    assert _review([node("a"), *others], (WEB, "a", 2), only=["a"])[0].fits is False
    assert _review([node("a"), *others, node("b", ours=False)], (WEB, "a", 2))[0].fits


def test_only_ready_unmarked_machines_of_the_fleet_are_candidates() -> None:
    nodes = [
        node("foreign", ours=False),
        node("unready", ready=False),
        node("leaving", reclaiming=True),
        node("marked", blocking_annotation="bigfleet.lucy.sh/do-not-disrupt=true"),
        node("cordoned", cordoned=True),
        node("plain"),
    ]
    assert _names(_review(nodes)) == "cordoned plain"


def test_pods_that_must_not_be_evicted_keep_their_node() -> None:
    """One without a controller, and one that is annotated."""
    marked = shape(metadata={"annotations": {"karpenter.sh/do-not-disrupt": "true"}})
    nodes, bare = _nodes("bare", "marked", "free"), shape(owner="")
    pods = [(bare, "bare", 1), (marked, "marked", 1), (WEB, "free", 1)]
    assert _names(_review(nodes, *pods)) == "free"
    [verdict] = _review(nodes, *pods, only=["bare"])
    assert (verdict.fits, verdict.why) == (
        False,
        "team: it has no controller to recreate it",
    )


def test_waiting_and_evicted_pods_are_placed_first() -> None:
    """The capacity for the Node's own pods is reserved, and a Node that they need stays."""
    nodes = [*_nodes("a", "b"), node("leaving", reclaiming=True)]
    assert _names(_review(nodes, (WEB, "a", 4), (WEB, "b", 4), most=1)) == "a"
    assert _review(nodes, (WEB, "a", 4), (WEB, "b", 4), (WEB, "", 5)) == []
    assert _review(nodes, (WEB, "a", 4), (WEB, "b", 4), (WEB, "leaving", 5)) == []


def test_a_node_about_to_be_drained_keeps_its_pods_places_before_that_is_seen() -> None:
    """The pods of one Node fit on the others, whichever it is; those of two do not."""
    nodes = _nodes("a", "b", "c")
    pods = [(WEB, "a", 4), (WEB, "b", 4), (WEB, "c", 4)]
    for name in ("a", "b"):
        assert _review(nodes, *pods, only=[name])[0].fits
    assert not _review(nodes, *pods, only=["b"], reclaiming=["a"])[0].fits
    assert _review(nodes, *pods, reclaiming=["a"]) == []


def test_an_empty_node_that_a_waiting_pod_will_use_is_not_free_to_go() -> None:
    nodes = _nodes("full", "new")
    assert _review(nodes, (WEB, "full", 8), (WEB, "", 3)) == []


def test_half_of_the_places_are_kept_for_preferred_nodes() -> None:
    names = [f"n{number}" for number in range(10)]
    pods = [(WEB, name, 0 if name < "n5" else 1) for name in names]
    found = _review(_nodes(*names), *pods, most=4, preferred=["n8", "n9"])
    assert {v.node for v in found} >= {"n8", "n9"}
    assert len(found) == 4
    assert _names(_review(_nodes(*names), *pods, most=1, preferred=["n9"])) == "n9"
    assert _names(_review(_nodes(*names), *pods, most=2)) == "n0 n1"


def test_a_node_that_is_asked_about_is_judged_even_when_it_cannot_go() -> None:
    nodes = [*_nodes("a", "b"), node("cordoned", cordoned=True)]
    pods = [(WEB, "a", 8), (WEB, "b", 2), (WEB, "cordoned", 3)]
    [no] = _review(nodes, *pods, only=["a"])
    assert (no.fits, no.pods) == (False, 8)
    assert no.why == "a pod of namespace team does not fit on any other node"
    [yes] = _review(nodes, *pods, only=["cordoned"])
    assert (yes.fits, yes.pods, yes.cost) == (True, 3, 3.0)
    assert _review(nodes, *pods, only=["unknown"]) == []


def test_a_gang_moves_only_to_where_it_can_be_whole() -> None:
    """Its companions hold a pod to their zone; all of it together may go to another."""
    gang = shape("2", **affinity_terms(peers(ZONE)))
    nodes = [node("a1", zone="a"), node("a2", "4", zone="a"), node("b1", zone="b")]
    held = [(gang, "a1", 1), (gang, "a2", 2)]
    assert _names(_review(nodes[:2] + nodes[2:], *held, most=1, only=["a1"])) == "a1"
    assert _review(nodes, *held, only=["a1"])[0].fits is False
    whole = [(gang, "a1", 3)]
    assert _review([nodes[0], nodes[2]], *whole, only=["a1"])[0].fits


def test_pods_that_repel_or_spread_need_a_domain_of_their_own() -> None:
    alone, even = shape(**anti_affinity_terms(peers(HOSTNAME_LABEL))), shape(**spread(ZONE))
    nodes = _nodes("a", "b")
    assert _review(nodes, (alone, "a", 1), (alone, "b", 1)) == []
    assert _names(_review([*nodes, node("c")], (alone, "a", 1), (alone, "b", 1))) == "c"
    zones = [node("a1", zone="a"), node("b1", zone="b"), node("b2", zone="b")]
    assert _review(zones, (even, "a1", 2), (even, "b1", 2), only=["b1"])[0].fits
    fills = shape("8", metadata={"labels": {"app": "other"}})
    pods = [(even, "a1", 2), (even, "b1", 2), (fills, "b2", 1)]
    assert not _review(zones, *pods, only=["b1"])[0].fits


def _mixed(nodes: int, pods: int) -> list[tuple[Shape, str, int]]:
    """Workloads of 20 pods each, of ten kinds of constraints, dealt over the Nodes."""
    kinds: list[Callable[[str], dict[str, Any]]] = [
        *(lambda _: {} for _ in range(4)),
        lambda app: spread(ZONE, app=app),
        lambda app: spread(HOSTNAME_LABEL, 3, app=app),
        lambda app: anti_affinity_terms(peers(HOSTNAME_LABEL, app)),
        lambda app: affinity_terms(peers(ZONE, app)),
        lambda _: {"tolerations": [{"operator": "Exists"}]},
        lambda _: {"nodeSelector": {"disk": "ssd"}},
    ]
    found: list[tuple[Shape, str, int]] = []
    for number in range(pods // 20):
        app = f"w{number}"
        spec = kinds[number % len(kinds)](app)
        made = shape(f"{100 + number % 7 * 150}m", metadata={"labels": {"app": app}}, **spec)
        found += [(made, f"n{(number * 7 + place * 13) % nodes}", 1) for place in range(20)]
    return found


def test_five_thousand_pods_on_three_hundred_nodes_are_judged_at_once() -> None:
    """Well under 200 ms of CPU time, whether Nodes can go or none can."""
    zones = ["a", "b", "c"]
    for cpu in ("16", "8"):
        nodes = [
            node(f"n{number}", cpu, zones[number % 3], labels={"disk": "ssd"})
            for number in range(300)
        ]
        snapshot = cluster(nodes, *_mixed(300, 5_000)).snapshot()
        took = []
        for _ in range(5):
            started = time.thread_time()
            found = review(snapshot, 10)
            took.append(time.thread_time() - started)
        assert min(took) < 0.2 * slowness(), took
        assert len(found) == (10 if cpu == "16" else 0)


@given(st.dictionaries(st.integers(0, 5), st.integers(1, 4)), st.integers(1, 6))
def test_the_remaining_nodes_fit_all_pods(pods: dict[int, int], most: int) -> None:
    """However pods of one CPU are dealt: as many Nodes go as are named, no more than asked for, and
    the rest holds all pods; and none is missing that could go.
    """
    nodes = _nodes(*(f"n{number}" for number in range(6)), cpu="4")
    found = _review(
        nodes, *((WEB, f"n{number}", count) for number, count in pods.items()), most=most
    )
    needed = -(-sum(pods.values()) // 4)
    assert len(found) == min(most, 6 - needed)
    assert all(verdict.fits for verdict in found)
