"""A pod's wait begins when the plan asks for it, whatever delays its creation."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaddriver.load.files import EventResult, StepReleased
from loaddriver.plan.records import ChurnEvent, Level, LoadEvent, Plan, PlanHeader, Workload
from loaddriver.record.due import CLOCK_TOLERANCE_MICROS, DueTimes, MissingPod
from loaddriver.record.rows import PodRow
from tests.judge.judge_rig import START, at, row
from tests.record.record_rig import result

RAMP, SOAK = 1, 2
SOAK_AT = 60.0
END = at(300)
RELEASED = [
    StepReleased(step=RAMP, at=START / 1e6),
    StepReleased(step=SOAK, at=START / 1e6 + SOAK_AT),
]


def plan(
    *levels: tuple[int, float, int],
    kind: Literal["Deployment", "StatefulSet", "Job"] = "Deployment",
    churns: tuple[float, ...] = (),
) -> Plan:
    """One workload, `web`, with its levels (step, offset, replicas) and its churn in the soak."""
    workload = Workload(
        cluster=0,
        step=RAMP,
        namespace="load",
        name="web",
        archetype="tiny-stateless",
        kind=kind,
        size=0,
        replicas=levels[0][2],
        priority=0,
        spread=False,
        group=None,
        topology=None,
    )
    events: list[LoadEvent] = [
        ChurnEvent(
            id=f"churn-{n}",
            cluster=0,
            step=SOAK,
            offset_seconds=offset,
            namespace="load",
            workload="web",
            rank=0,
        )
        for n, offset in enumerate(churns)
    ]
    return Plan(
        header=PlanHeader(profile="smoke", seed=1, clusters=1, pods=1),
        steps=(),
        workloads=(workload,),
        levels=tuple(
            Level(cluster=0, workload="web", step=step, offset_seconds=offset, replicas=replicas)
            for step, offset, replicas in levels
        ),
        events=tuple(events),
    )


def churned(number: int, pod: str, status: int = 200) -> EventResult:
    """What the driver recorded of a churn: it deleted `pod`."""
    return result(f"churn-{number}", pod, status)


def web(uid: str, created: float, deleted: float | None = None) -> PodRow:
    """A pod of `web`, named as its UID."""
    return row(uid, created, None, deleted, workload="web", name=uid)


def matched(
    made: Plan, pods: list[PodRow], *results: EventResult
) -> tuple[dict[str, float | None], list[MissingPod]]:
    """Due times by pod, in seconds after the start, and the pods that are missing."""
    rows, missing = DueTimes(made, [*RELEASED, *results], ["c0"]).of_pods(pods, END)
    assert [replace(each, due_micros=None) for each in rows] == pods
    due = {
        each.uid: None if each.due_micros is None else (each.due_micros - START) / 1e6
        for each in rows
    }
    return due, missing


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Job"])
def test_the_pods_of_an_object_are_due_when_its_creation_is(
    kind: Literal["Deployment", "StatefulSet", "Job"],
) -> None:
    """The k-th included, however late its controller creates it, and however often the request was
    repeated meanwhile.
    """
    pods = [web("a", 5.1), web("b", 9), web("c", 30)]
    due, missing = matched(plan((RAMP, 5, 3), kind=kind), pods)
    assert due == {"a": 5, "b": 5, "c": 5}
    assert missing == []


def test_pods_that_a_scaling_adds_are_due_when_the_scaling_is() -> None:
    due, _ = matched(
        plan((RAMP, 0, 2), (SOAK, 10, 4)), [web("a", 1), web("b", 2), web("c", 75), web("d", 90)]
    )
    assert due == {"a": 0, "b": 0, "c": 70, "d": 70}


def test_pods_scaled_away_before_they_were_created_are_due_no_more() -> None:
    """Otherwise what is created at the next scaling would have waited since the first."""
    made = plan((RAMP, 0, 5), (RAMP, 20, 2), (SOAK, 0, 3))
    due, missing = matched(made, [web("a", 1), web("b", 2), web("c", 62)])
    assert due == {"a": 0, "b": 0, "c": 60}
    assert missing == []


def test_what_is_wanted_and_never_created_has_waited_since_it_was_due() -> None:
    """It must not be left out: the result would be better for each pod that never came."""
    _, missing = matched(plan((RAMP, 10, 3)), [web("a", 11)])
    assert [each.waited_seconds for each in missing] == [290, 290]
    assert {(each.cluster, each.archetype, each.workload) for each in missing} == {
        ("c0", "tiny-stateless", "web")
    }


def test_what_was_not_released_is_not_due() -> None:
    """Of a run that ended early, later steps and later offsets were never asked for."""
    made = plan((RAMP, 0, 1), (SOAK, 400, 2), (7, 0, 3))
    assert matched(made, [web("a", 1)]) == ({"a": 0}, [])


def test_the_replacement_of_a_churned_pod_is_due_when_its_deletion_is() -> None:
    """Not when the request got through: its retries and the controller's delay lie in the wait."""
    made = plan((RAMP, 0, 2), churns=(10.0,))
    pods = [web("a", 1, deleted=74), web("b", 1), web("c", 75)]
    assert matched(made, pods, churned(0, "a")) == ({"a": 0, "b": 0, "c": 70}, [])


@pytest.mark.parametrize(
    ("kind", "status"), [("StatefulSet", 200), ("Deployment", 404), ("Deployment", 409)]
)
def test_a_replacement_that_the_plan_does_not_ask_for_counts_from_its_creation(
    kind: Literal["Deployment", "StatefulSet"], status: int
) -> None:
    """A StatefulSet's pod may only be created once the old one is gone, which is its own time; and
    a pod that ended by itself was not deleted by the plan.
    """
    made = plan((RAMP, 0, 1), kind=kind, churns=(10.0,))
    pods = [web("a", 1, deleted=70), web("b", 75)]
    due, missing = matched(made, pods, churned(0, "a", status))
    assert due == {"a": 0, "b": None}
    assert missing == []


def test_the_replacement_of_an_evicted_pod_counts_from_its_creation() -> None:
    """And takes no due time from a churned one that comes later."""
    made = plan((RAMP, 0, 2), churns=(30.0,))
    pods = [web("a", 1, deleted=80), web("b", 1, deleted=90.1), web("c", 81), web("d", 90.3)]
    assert matched(made, pods, churned(0, "b"))[0] == {"a": 0, "b": 0, "c": None, "d": 90}


def test_a_churned_pod_that_is_surplus_leaves_no_due_time_behind() -> None:
    """It is not replaced, so the next replacement, of an evicted pod, must not get its due time."""
    made = plan((RAMP, 0, 2), (SOAK, 9, 1), churns=(10.0,))
    pods = [web("a", 1, deleted=70.1), web("b", 1, deleted=200), web("c", 201)]
    assert matched(made, pods, churned(0, "a")) == ({"a": 0, "b": 0, "c": None}, [])


def test_a_clock_that_is_behind_by_less_than_its_limit_loses_no_due_time() -> None:
    """The API server's host has the creation just before the load's has the due time."""
    behind = CLOCK_TOLERANCE_MICROS / 2e6
    rows, _ = DueTimes(plan((RAMP, 10, 1)), RELEASED, ["c0"]).of_pods([web("a", 10 - behind)], END)
    assert [each.due_micros for each in rows] == [at(10 - behind)]
    assert rows[0].waited_seconds >= 0


@given(
    st.lists(st.tuples(st.floats(0, 250), st.integers(0, 6)), min_size=1, max_size=5),
    st.lists(st.tuples(st.floats(0, 290), st.none() | st.floats(0, 60)), max_size=12),
)
def test_due_times_are_in_order_and_never_after_the_creation(
    levels: list[tuple[float, int]], lives: list[tuple[float, float | None]]
) -> None:
    """Whatever was asked for and created: no more pods are due than were ever asked for, and none
    waits a negative time.
    """
    made = plan(*((RAMP, offset, replicas) for offset, replicas in sorted(levels)))
    pods = [
        web(str(n), created, None if lived is None else created + lived)
        for n, (created, lived) in enumerate(sorted(lives, key=lambda life: life[0]))
    ]
    rows, missing = DueTimes(made, RELEASED, ["c0"]).of_pods(pods, END)
    due = [each.due_micros for each in rows if each.due_micros is not None]
    assert due == sorted(due)
    assert all(each.waited_seconds >= 0 for each in rows)
    assert all(each.waited_seconds >= 0 for each in missing)
    wanted = [0, *(replicas for _, replicas in sorted(levels))]
    asked = sum(max(0, after - before) for before, after in pairwise(wanted))
    assert len(due) + len(missing) <= asked
