"""Waits are judged from due time to binding; what delays a pod's creation is part of them."""

from __future__ import annotations

from dataclasses import replace

from loaddriver.judge.percentiles import AtLeast
from loaddriver.judge.schema import Summary
from loaddriver.record.due import MissingPod
from loaddriver.record.rows import PodRow
from tests.judge.judge_rig import at, facts, gate, row, summarised, unseen

HOLDS = gate("pods.created", 1, ">=")


def pod(number: int, due: float | None, created: float, bound: float | None) -> PodRow:
    """A pod of an object of its own that found a ready node."""
    return row(
        str(number),
        created,
        bound,
        due_micros=None if due is None else at(due),
        node_was_ready=True,
    )


def late(pods: int, delay: float) -> list[PodRow]:
    """Pods due one a second, created `delay` later and bound two seconds after that."""
    return [pod(n, n / 10, n / 10 + delay, n / 10 + delay + 2) for n in range(pods)]


def missing(due: float, archetype: str = "tiny-stateless") -> MissingPod:
    """A planned pod that was never created."""
    return MissingPod("c0", archetype, "web-x", "", at(due), at(100))


def judged(rows: list[PodRow], *never: MissingPod, **more: object) -> Summary:
    return summarised(facts(**more), [unseen()], rows, (HOLDS,), missing=never)


def test_a_late_creation_counts_where_the_create_to_bind_latency_hides_it() -> None:
    """An API server or a controller that takes 12 s makes every pod wait 12 s longer."""
    prompt, slow = judged(late(400, 0)), judged(late(400, 12))
    assert prompt.bind_latency_seconds == slow.bind_latency_seconds
    for made, waited in ((prompt, 2.0), (slow, 14.0)):
        assert made.due_to_bind_seconds.p50 == waited
        assert made.due_to_bind_seconds.p99 == waited
        assert made.archetypes["tiny-stateless"].due_to_bind_seconds.p50 == waited
        assert made.clusters["c0"].due_to_bind_seconds.p50 == waited
        assert made.placement["nodeWasReady"].due_to_bind_seconds.p50 == waited
        assert made.curves["all"][-1] == (waited, 1.0)


def test_a_late_creation_is_a_hop_of_its_own() -> None:
    """`arrived` has it, the other hops have what they had, and all add up to the wait."""
    made = judged(late(400, 12))
    assert {name: hop.mean for name, hop in made.hops_seconds.items()} == {
        "arrived": 12.0,
        "scheduled": 2.0,
    }
    assert made.wait_bands["all"].wait_seconds == 14.0
    assert "86 % of it from its due time until it existed" in made.diagnosis[0]


def test_a_pod_that_the_plan_did_not_ask_for_counts_from_its_creation() -> None:
    """It is counted, and has no `arrived`."""
    made = judged([*late(10, 12), pod(99, None, 50, 51)])
    assert made.pods.without_due_time == 1
    assert made.hops_seconds["arrived"].pods == 10
    assert made.soak is not None
    assert made.soak.due_to_bind_seconds.max == 1.0


def test_a_planned_pod_that_was_never_created_makes_the_result_worse() -> None:
    """It has waited since it was due; enough of them leave only a bound."""
    rows = late(400, 0)
    few = judged(rows, missing(10, "gpu-batch"))
    assert few.pods.never_created == 1
    assert few.due_to_bind_seconds.max == AtLeast(90.0)
    assert few.bind_latency_seconds.max == 2.0
    assert few.archetypes["gpu-batch"].never_created == 1
    assert few.archetypes["gpu-batch"].due_to_bind_seconds.max == AtLeast(90.0)
    assert few.ramp.never_created == 1
    many = judged(rows, *(missing(10) for _ in range(40)))
    assert isinstance(many.due_to_bind_seconds.p99, AtLeast)


def test_a_pod_belongs_to_the_phase_in_which_it_was_due() -> None:
    """However late it is created: the soak's figures are not of what the ramp owed it."""
    made = judged([pod(1, 39, 45, 46), pod(2, 41, 42, 43)])
    assert made.soak is not None
    assert (made.ramp.pods, made.soak.pods) == (1, 1)
    assert made.ramp.due_to_bind_seconds.max == 7.0


def test_an_open_stage_tells_pods_that_found_room_from_those_that_waited_for_a_node() -> None:
    """Two kinds of waits: the median of both is that of neither."""
    found, waited = pod(1, 31, 32, 33), replace(pod(2, 31, 32, 50), node_was_ready=False)
    rows = [pod(3, 1, 2, 3), found, waited]
    stage = judged(rows, open_stage_started_micros=at(30)).open_stage
    assert stage is not None
    waits = {name: each.due_to_bind_seconds.max for name, each in stage.placement.items()}
    assert waits == {"nodeWasReady": 2.0, "waitedForNode": 19.0}


def test_the_ramp_begins_with_its_first_release() -> None:
    """Starting the clusters is no part of its length."""
    rows = [pod(1, 11, 11, 12)]
    assert judged(rows, ramp_started_micros=at(10)).ramp.seconds == 30
    assert judged(rows).ramp.seconds == 40


def test_a_gang_is_complete_as_late_as_its_last_pod_since_it_was_due() -> None:
    """Two of its pods were created 14 s after they were due."""
    members = [
        row(str(n), created, 20, due_micros=at(2), group="g", workload="g", rack="r1")
        for n, created in enumerate((3, 3, 16, 16))
    ]
    gangs = judged(members, planned_groups={("c0", "g"): 4}).gangs
    assert gangs.completion_seconds.max == 18.0
    assert gangs.due_to_bind_seconds.max == 18.0
    assert gangs.bind_latency_seconds.max == 17.0


def test_the_timeline_has_what_was_due_beside_what_exists() -> None:
    made = judged([pod(1, 1, 4, 5)], missing(2))
    assert made.timeline.due[:5] == [1, 2, 2, 2, 2]
    assert made.timeline.created[:5] == [0, 0, 0, 1, 1]
