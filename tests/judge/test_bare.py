"""Beside a bare run, a run shows how many times the physical limit it needs."""

from __future__ import annotations

from typing import Any

import pytest

from loaddriver.errors import LoaddriverError
from loaddriver.judge.facts import InvalidReason
from loaddriver.judge.schema import Summary
from loaddriver.judge.side_by_side import side_by_side
from loaddriver.record.rows import PodRow
from tests.judge.judge_rig import facts, gate, row, summarised, unseen

GATES = [gate("bindLatencySeconds.p50", 5, ratio_to="bare")]


def run(seconds: float, bare: Summary | None = None, **more: Any) -> Summary:
    rows = [row(str(n), n, n + seconds) for n in range(10)]
    return summarised(facts(**more), [unseen()], rows, GATES, bare=bare)


def bare_run() -> Summary:
    return run(0.5, id="b1", bare_of="r1")


def test_ratios_are_by_hop_and_percentile() -> None:
    """This run's number divided by the bare run's; null where one of both is only a bound."""
    section = run(2, bare_run()).bare
    assert section is not None
    assert section.id == "b1"
    assert section.ratios["bind"] == {"p50": 4.0, "p90": None, "p99": None}
    assert section.ratios["scheduled"]["mean"] == 4.0


def test_a_gate_on_a_ratio_is_judged_in_the_run_itself() -> None:
    """Four times the bare run is within five times, eight times is not."""
    assert run(2, bare_run()).verdict == "pass"
    missed = run(4, bare_run())
    assert missed.verdict == "fail"
    assert missed.gates[0].value == 8.0


def test_without_a_bare_run_there_is_no_ratio() -> None:
    """The gate fails as unreadable, and the section is missing."""
    made = run(2)
    assert made.bare is None
    assert made.gates[0].value is None


def gangs(*members: PodRow, **more: Any) -> Summary:
    plan = {("c0", "g1"): 2, ("c0", "g2"): 1}
    return summarised(facts(planned_groups=plan, **more), [unseen()], members, GATES)


def test_one_plan_with_and_without_anchors_stands_side_by_side() -> None:
    """Gangs, the stuck ones, and how each began; the same table in both summaries."""
    whole = (row("a", 0, 2, group="g1", bound_by="anchor"), row("b", 0, 3, group="g1"))
    on = gangs(*whole, row("c", 0, 1, group="g2"), id="on", anchors="on")
    off = gangs(row("a", 0, 2, group="g1"), row("b", 0, None, group="g1"), id="off", anchors="off")
    first, second = side_by_side(on, off)
    assert first.side_by_side == second.side_by_side
    sides = [(s.id, s.anchors, s.gangs, s.stuck, s.anchored) for s in first.side_by_side]
    assert sides == [("on", "on", 2, 0, 1), ("off", "off", 2, 2, 0)]
    assert first.side_by_side[0].completion_seconds.max == 3.0
    assert first.gates == on.gates
    assert all(side.valid for side in first.side_by_side)


def test_a_side_that_is_void_is_shown_as_void() -> None:
    """A table of figures must not hide that half of them mean nothing."""
    whole = row("a", 0, 2, group="g2")
    on, off = (
        gangs(whole, anchors="on"),
        gangs(whole, anchors="off", invalid_reasons=(InvalidReason("It stalled."),)),
    )
    assert [side.valid for side in side_by_side(on, off)[0].side_by_side] == [True, False]


@pytest.mark.parametrize("other", [{"seed": 2}, {"profile": "dev-50"}, {"planned_pods": 7}])
def test_two_plans_do_not_stand_side_by_side(other: dict[str, Any]) -> None:
    """What differs would be the plan, not the anchors."""
    with pytest.raises(LoaddriverError, match="did not run the same plan"):
        side_by_side(gangs(), gangs(**other))
