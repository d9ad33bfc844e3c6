"""Each gang of the plan ends in exactly one way, and only a whole one in one rack is praised."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loaddriver.judge.gangs import Gangs, judge_gangs
from loaddriver.judge.percentiles import AtLeast
from loaddriver.record.due import MissingPod
from loaddriver.record.rows import PodRow
from tests.judge.judge_rig import at, row

PLAN = {("c0", "g1"): 2}


def member(uid: str, bound: float | None = 5, **more: Any) -> PodRow:
    return row(uid, 0, bound, **{"group": "g1", **more})


def judged(*members: PodRow) -> Gangs:
    return judge_gangs(members, PLAN)


def test_a_gang_bound_by_the_scheduler_alone() -> None:
    """Complete, pure, scheduler-first."""
    gangs = judged(member("a", 4), member("b", 6))
    assert (gangs.complete, gangs.rack_pure, gangs.scheduler_first) == (1, 1, 1)
    assert gangs.completion_seconds.max == 6.0
    assert gangs.partial_seconds.max == 2.0
    assert gangs.bind_latency_seconds.max == 6.0
    assert (gangs.complete_share, gangs.rack_pure_share) == (1.0, 1.0)


def test_a_gang_none_of_whose_pods_was_created_has_waited_until_the_end() -> None:
    """Not for no time at all, which would make the median of slow gangs look better."""
    uncreated = [MissingPod("c0", "train", "w", "g1", at(due), at(60)) for due in (10, 12)]
    gangs = judge_gangs([], PLAN, uncreated)
    assert gangs.completion_seconds.max == AtLeast(50.0)
    half = judge_gangs([member("a", 4)], PLAN, uncreated[1:])
    assert half.completion_seconds.max == AtLeast(100.0)


def test_one_anchor_makes_a_gang_anchored() -> None:
    """Help is disclosed, however late it came."""
    gangs = judged(member("a"), member("b", bound_by="anchor"))
    assert (gangs.anchored, gangs.scheduler_first) == (1, 0)


def test_a_gang_with_a_member_left_out_is_not_complete() -> None:
    """And its completion is still being waited for."""
    gangs = judged(member("a"), member("b", None))
    assert (gangs.complete, gangs.rack_pure, gangs.scheduler_first) == (0, 1, 1)
    assert gangs.completion_seconds.p50 == AtLeast(100.0)
    assert gangs.partial_seconds.max == AtLeast(95.0)
    assert gangs.bind_latency_seconds.max == AtLeast(100.0)


def test_a_gang_that_was_never_created_is_counted() -> None:
    """The plan, not the rows, says which gangs there are."""
    gangs = judged()
    assert (gangs.count, gangs.unplaced, gangs.complete, gangs.rack_pure) == (1, 1, 0, 0)
    assert gangs.partial_seconds.p50 is None


def test_two_racks_are_not_one() -> None:
    """Nor is a rack that nobody knows."""
    two, unknown = (
        judged(member("a"), member("b", rack="r2")),
        judged(member("a"), member("b", rack="")),
    )
    assert (two.rack_pure, two.split) == (0, 1)
    assert unknown.rack_pure == 0


def test_a_gang_of_which_nobody_runs_is_not_split() -> None:
    """It is in no rack, which is no praise either."""
    gangs = judged(member("a", None), member("b", None))
    assert (gangs.rack_pure, gangs.split) == (0, 0)


def test_members_that_never_ran_together_make_no_gang() -> None:
    """A member replaced before the second came leaves the gang short at every moment."""
    gangs = judged(member("a", 1, deleted_micros=row("x", 3).created_micros), member("b", 4))
    assert gangs.complete == 0


def test_a_gang_that_moves_as_a_whole_stays_pure() -> None:
    """Only racks at one moment are compared."""
    left = row("x", 3).created_micros
    gangs = judged(
        member("a", 1, deleted_micros=left),
        member("b", 1, deleted_micros=left),
        member("c", 3, rack="r2"),
        member("d", 3, rack="r2"),
    )
    assert (gangs.complete, gangs.rack_pure) == (1, 1)


def test_a_group_of_no_plan_is_told() -> None:
    """It counts, and it is unplanned."""
    gangs = judged(member("a"), member("b"), member("z", group="g9"))
    assert (gangs.count, gangs.unplanned) == (2, 1)


def test_no_gangs_have_no_shares() -> None:
    """A gate on a share of nothing cannot pass."""
    gangs = judge_gangs([row("a", 0, 1)], {})
    assert (gangs.count, gangs.complete_share, gangs.rack_pure_share) == (0, None, None)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["g1", "g2", "g3"]),
            st.none() | st.integers(0, 50),
            st.sampled_from(["anchor", "scheduler"]),
        ),
        max_size=12,
    )
)
def test_every_gang_ends_in_exactly_one_way(pods: list[tuple[str, int | None, str]]) -> None:
    """Anchored, scheduler-first and no-room add up to all."""
    rows = [
        row(str(number), 0, bound, group=group, bound_by=by)
        for number, (group, bound, by) in enumerate(pods)
    ]
    gangs = judge_gangs(rows, {("c0", "g1"): 2, ("c0", "g2"): 1})
    assert gangs.anchored + gangs.scheduler_first + gangs.unplaced == gangs.count
    assert gangs.complete <= gangs.count - gangs.unplaced
