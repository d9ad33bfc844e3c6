"""A diagnosis names who waits, for what, and what is missing: one constructed case per cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaddriver.judge.diagnosis import diagnose
from loaddriver.judge.facts import ArchetypeFacts, Shortfall
from loaddriver.plan.manifests import INSTANCE_TYPE_KEY, RACK_KEY
from loaddriver.record.audit import AuditTimestamps
from loaddriver.record.journal import Event, Journal
from loaddriver.record.live_counts import NullListener
from loaddriver.record.recorder import Observations
from loaddriver.record.rows import PodRow
from loaddriver.record.watching import NodeObservation, PodObservation, WatchTimestamps
from tests.judge.judge_rig import at, facts, row, unseen

AFFINITY = "0/64 nodes are available: 64 node(s) didn't match pod affinity rules."
CPU = "0/2 nodes are available: 2 Insufficient cpu."
KINDS = {
    "memory-cache": ArchetypeFacts(4, frozenset({"m.big"}), "sameRack", fleet_machines=9),
    "web": ArchetypeFacts(10, frozenset({"w.small", "w.large"}), "", fleet_machines=3),
}


def node(name: str, kind: str, rack: str = "r1", ready: bool = True) -> NodeObservation:
    labels = {INSTANCE_TYPE_KEY: kind, RACK_KEY: rack}
    return NodeObservation(name, labels, at(1), ready, at(1) if ready else None)


def seen(*nodes: NodeObservation, **messages: str) -> Observations:
    timestamps = WatchTimestamps(NullListener(), nodes={each.name: each for each in nodes})
    return replace(unseen(), watch=timestamps, pending=messages)


def gang(uid: str, bound: float | None = None, **more: Any) -> PodRow:
    return row(uid, 0, bound, **{"archetype": "memory-cache", "group": "g1", **more})


def web(uid: str, bound: float | None = None, **more: Any) -> PodRow:
    return row(uid, 0, bound, **{"archetype": "web", "node": "w1" if bound else "", **more})


def diagnosed(observed: Observations, *rows: PodRow, **more: Any) -> list[str]:
    refused, journal = more.pop("refused", {}), more.pop("journal", None)
    known = facts(archetypes=KINDS, soak_started_micros=None, **more)
    return diagnose(known, [observed], rows, refused, journal)


def test_a_gang_whose_rack_is_full_while_others_have_room() -> None:
    """Fragmentation: the rack is missing, not capacity."""
    observed = seen(
        node("n1", "m.big", "rack-3"), node("n2", "m.big", "rack-4"), b=AFFINITY, c=AFFINITY
    )
    there = [gang(f"x{n}", 1, node="n1", rack="rack-3", group="g0") for n in range(3)]
    began = gang("a", 1, node="n1", rack="rack-3")
    assert diagnosed(observed, *there, began, gang("b"), gang("c")) == [
        "2 memory-cache pods of 1 gang in c0 wait, the longest for 100 s; "
        "2 must join their gangs in rack-3, with 0 free places; other racks have 4; "
        "scheduler: 0/64 nodes are available: 64 node(s) didn't match pod affinity rules."
    ]


def test_room_in_another_gangs_rack_is_no_room() -> None:
    """One gang could end at home, the other cannot: only its pods are stuck."""
    observed = seen(node("n1", "m.big", "r1"), node("n2", "m.big", "r2"))
    full = [gang(f"x{n}", 1, node="n1", group="g0") for n in range(3)]
    began = [gang("a", 1, node="n1"), gang("b", 1, node="n2", rack="r2", group="g2")]
    [said] = diagnosed(observed, *full, *began, gang("c"), gang("d", group="g2"))
    assert "1 must join their gangs in r1, with 0 free places; other racks have 3" in said


def test_where_there_is_a_log_it_says_which_nodes_have_room() -> None:
    """The watch missed that one node failed and that another came; the log has both."""
    log = AuditTimestamps()
    for name, rack in (("n1", "r1"), ("n2", "r2")):
        log.nodes_created[name].append(at(1))
        log.racks[name, at(1)], log.instance_types[name, at(1)] = rack, "m.big"
        log.nodes_ready[name].append(at(2))
    log.nodes_unready["n1"].append(at(9))
    missed = replace(seen(node("n1", "m.big", "r1")), audit=log)
    [said] = diagnosed(missed, *(gang(f"p{n}") for n in range(4)))
    assert "ready nodes have 4 free places for them" in said
    log.nodes_deleted["n2"].append(at(11))
    [said] = diagnosed(missed, gang("p"))
    assert "1 node for it joined and did not become ready" in said


def test_a_gang_for_which_no_rack_is_large_enough() -> None:
    """Room in all is enough, room in one rack is not."""
    observed = seen(node("n1", "m.big", "r1"), node("n2", "m.big", "r2"))
    [said] = diagnosed(observed, *(gang(f"p{n}") for n in range(6)))
    assert "there are 8 free places, but no rack has more than 4 and a gang needs 6 in one" in said


def test_a_gang_with_room_in_its_own_rack_waits_for_the_scheduler() -> None:
    """Its members would fit where it began."""
    observed = seen(node("n1", "m.big", "r1"))
    [said] = diagnosed(observed, gang("a", 1, node="n1"), gang("b"))
    assert "ready nodes have 3 free places for them, so they wait for kube-scheduler" in said


def test_a_finished_pod_has_given_its_place_back() -> None:
    """Jobs end; their pods stay bound for the record but take no room."""
    observed = seen(node("w1", "w.large"))
    observed.watch.pods["done"] = PodObservation("load", "p", {}, at(0), "w1", "Succeeded", at(1))
    full = [web(f"x{n}", 1) for n in range(9)]
    [said, *_] = diagnosed(observed, *full, web("done", 1), web("b"))
    assert "ready nodes have 1 free place for them" in said


def test_pods_without_a_request_wait_for_the_pod_controller() -> None:
    """Demand that was never written down."""
    known = [web(f"x{n}", 1, seen_micros=at(0.5)) for n in range(10)]
    [said, *_] = diagnosed(seen(node("w1", "w.small")), *known, web("b"), web("c"))
    assert (
        "2 have no CapacityRequest: the pod controller is behind or its requests are rejected"
        in said
    )


def test_requests_that_reached_no_shard_wait_for_the_operator() -> None:
    """Demand that was written down, and that no roll-up contained."""
    told = {"seen_micros": at(0.5), "rolled_up_micros": at(0.9)}
    known = [web(f"x{n}", 1, **told) for n in range(10)]
    [said, *_] = diagnosed(seen(node("w1", "w.small")), *known, web("b", seen_micros=at(1)))
    assert "the requests of 1 were in no roll-up that a shard accepted" in said


def test_where_such_stamps_are_not_taken_nobody_is_blamed_for_them() -> None:
    """Without an audit log, or without a journal, their absence means nothing."""
    [said] = diagnosed(seen(), web("b"))
    assert "CapacityRequest" not in said
    assert "roll-up" not in said


def test_a_shard_that_is_short_says_of_what_and_why() -> None:
    """Capacity: the shard's own words, and the size of the fleet."""
    short = [
        Shortfall("c0", ("w.small",), {"cpu": "12", "memory": "48Gi"}, "all matching are claimed"),
        Shortfall("c0", ("w.large",), {"cpu": "1"}),
        Shortfall("c9", ("w.large",), {"cpu": "7"}),
        Shortfall("c0", ("m.big",), {"cpu": "8"}),
    ]
    [said] = diagnosed(seen(b=CPU), web("b"), shortfalls=short)
    assert said == (
        "1 web pod in c0 waits, the longest for 100 s; capacity is missing: the shard lacks "
        "12 cpu and 48Gi memory for it (all matching are claimed), and 1 more need is short; the "
        "fleet has 3 machines for it; scheduler: 0/2 nodes are available: 2 Insufficient cpu."
    )


@pytest.mark.parametrize(
    ("nodes", "shortfalls", "cause"),
    [
        (
            [node("w1", "w.small"), node("w2", "w.large", ready=False)],
            [],
            "1 node for it joined and did not become ready",
        ),
        (
            [node(f"w{n}", "w.small") for n in range(1, 4)],
            [],
            "all 3 machines that the fleet has for it are in use",
        ),
        (
            [node("w1", "w.small")],
            [],
            "its 1 ready node there is full and no shard reports a shortfall",
        ),
        ([node("w1", "w.small")], None, "is full and no shard responded"),
        ([], [], "there is no node for it and no shard reports a shortfall"),
    ],
)
def test_when_demand_is_known_the_machines_are_what_is_missing(
    nodes: list[NodeObservation], shortfalls: list[Shortfall] | None, cause: str
) -> None:
    """Not ready, not there, or not asked for."""
    full = [web(f"x{each.name}-{n}", 1, node=each.name) for each in nodes for n in range(10)]
    [said, *_] = diagnosed(seen(*nodes), *full, web("b"), shortfalls=shortfalls)
    assert cause in said


def test_refusals_that_no_repetition_heals_come_first() -> None:
    """A quota, a right, an overloaded server; conflicts and reads are no finding."""
    said = diagnosed(
        seen(),
        web("b"),
        refused={
            "create pods 403": 1200,
            "create pods/binding 409": 9000,
            "get leases 403": 5000,
            "patch nodes 429": 3,
            "create pods/eviction 429": 900,  # a disruption budget at work
            "create pods 500": 2,
        },
    )
    assert said[:2] == [
        "API servers rejected 1,200 x create pods (403): RBAC or a quota denies it; the "
        "response states which.",
        "API servers rejected 3 x patch nodes (429): the API server throttles its clients.",
    ]
    assert len(said) == 3


def test_the_slowest_pods_name_their_hop() -> None:
    """A missed percentile: who, and in which part of the wait."""
    fast = [row(str(n), 0, 1) for n in range(198)]
    timestamps = {"node_was_ready": False, "decided_micros": at(2), "provisioned_micros": at(12)}
    slow = [
        row(f"s{n}", 0, 20, node_ready_micros=at(18), archetype="web", cluster="c1", **timestamps)
        for n in range(2)
    ]
    assert diagnosed(seen(), *fast, *slow) == [
        "Of all pods the slowest 2 of 200 waited 20 s on average, 50 % of it until the machine "
        "began to boot (provider); 2 of them web, 2 in c1."
    ]


def test_the_soak_has_a_sentence_of_its_own() -> None:
    """Its slow pods may be others than the ramp's."""
    rows = [row(str(n), 0, 30) for n in range(200)] + [row(f"s{n}", 50, 51) for n in range(200)]
    said = diagnose(facts(), [unseen()], rows, {})
    assert [each.split(" the slowest")[0] for each in said] == ["Of all pods", "Of the soak's pods"]
    assert "waited 1 s on average, 100 % of it until it was bound (kube-scheduler)" in said[1]


def test_many_findings_are_cut_to_a_handful() -> None:
    """Most pods first; the others are counted, not listed."""
    kinds = [f"kind-{letter}" for letter in "abcdef"]
    rows = [
        row(f"{kind}-{n}", 0, archetype=kind)
        for size, kind in enumerate(kinds, start=1)
        for n in range(size)
    ]
    said = diagnosed(seen(), *rows, *(row(str(n), 0, 1) for n in range(100)))
    assert [each[:8] for each in said[:3]] == ["6 kind-f", "5 kind-e", "4 kind-d"]
    assert said[3] == "6 more pods wait: kind-a, kind-b, kind-c."
    assert len(said) == 5


def test_a_long_message_of_the_scheduler_is_cut_and_the_commonest_is_told() -> None:
    """To its first sentence, the rest being about preemption, and that to whole words: it can list
    a reason for every node.
    """
    observed = seen(a="x" * 999, b=CPU, c=CPU)
    [said] = diagnosed(observed, web("a"), web("b"), web("c"))
    assert said.endswith("scheduler (of 2): 0/2 nodes are available: 2 Insufficient cpu.")
    two = f"{CPU}. preemption: 0/2 nodes are available: 2 No preemption victims found."
    [short] = diagnosed(seen(a=two), web("a"))
    assert short.endswith("scheduler: 0/2 nodes are available: 2 Insufficient cpu.")
    [long] = diagnosed(seen(a="no room, " * 99), web("a"))
    assert long.endswith("no room, no room, ….")


def test_few_pods_have_no_slowest_hundredth() -> None:
    """One pod of ten is no pattern."""
    assert diagnosed(seen(), *(row(str(n), 0, 1) for n in range(99))) == []


def test_a_run_in_which_nobody_waits_and_nothing_was_bound_has_nothing_to_say() -> None:
    """No sentence is better than an empty one."""
    assert diagnosed(seen(), row("a", 0, None, deleted=5)) == []


def story(machine: str, *states: tuple[float, str]) -> dict[str, list[Event]]:
    return {machine: [Event(at(t) / 1e6, "state", machine, state) for t, state in states]}


def test_machines_that_are_stuck_or_failed_are_told_while_pods_wait() -> None:
    """From their stories; a machine that serves is no finding."""
    stories = {
        **story("a", (1, "CREATING"), (2, "IDLE"), (8, "CONFIGURING")),
        **story("b", (40, "CONFIGURING")),
        **story("c", (1, "CREATING"), (9, "FAILED")),
        **story("d", (1, "CONFIGURING"), (9, "CONFIGURED")),
    }
    said = diagnosed(seen(), web("x"), journal=Journal(stories, 0))
    assert said[1:] == ["Of the machines, 1 failed and 2 are in transition, the longest for 92 s."]
    bound = [row(str(n), 0, 1) for n in range(10)]
    assert "machines" not in " ".join(diagnosed(seen(), *bound, journal=Journal(stories, 0)))
