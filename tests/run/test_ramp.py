"""The ramp goes on only while binding keeps up, and says why it waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaddriver.profile import Ramp
from loaddriver.run.ramp import Move, RampView, next_move


def ramp(gate: Literal["hold", "observe"] = "hold") -> Ramp:
    return Ramp(
        gate=gate,
        steps=3,
        step_seconds=10,
        max_backlog_pods=5,
        max_step_p99_seconds=4,
        budget_seconds=100,
    )


BOUND_WELL = RampView(
    started_at=0,
    steps_released=1,
    last_released_at=0,
    last_step_sent=True,
    last_step_pods=50,
    last_step_bound=50,
    last_step_p99_seconds=2,
    backlog_pods=0,
)


def test_the_first_step_needs_no_reason() -> None:
    """An empty cluster has nothing to wait for."""
    assert next_move(ramp(), replace(BOUND_WELL, steps_released=0), 0).move is Move.RELEASE


def test_a_step_that_bound_well_is_followed_by_the_next_after_its_length() -> None:
    """The rate of the profile is kept even where binding is faster."""
    assert next_move(ramp(), BOUND_WELL, 9).move is Move.WAIT
    assert next_move(ramp(), BOUND_WELL, 10).move is Move.RELEASE


@pytest.mark.parametrize(
    "behind", [replace(BOUND_WELL, backlog_pods=6), replace(BOUND_WELL, last_step_sent=False)]
)
def test_a_backlog_holds_the_ramp(behind: RampView) -> None:
    """No load is added while pods wait beyond the limit or a step is still being sent."""
    assert next_move(ramp(), behind, 50).move is Move.WAIT


def test_a_slow_step_is_a_breach_and_the_next_waits_longer() -> None:
    """A step that drained, but slowly, cannot hold the ramp for ever; it is put on record."""
    slow = replace(BOUND_WELL, last_step_p99_seconds=5)
    assert next_move(ramp(), slow, 15).move is Move.WAIT
    later = next_move(ramp(), slow, 20)
    assert later.move is Move.RELEASE
    assert later.breach


def test_observe_releases_by_the_clock_whatever_happens() -> None:
    """Fixed times keep a slow release from hiding; the breach is recorded."""
    stuck = replace(BOUND_WELL, last_step_bound=0, backlog_pods=50, last_step_p99_seconds=20)
    verdict = next_move(ramp("observe"), stuck, 10)
    assert verdict.move is Move.RELEASE
    assert verdict.breach


def test_the_last_step_must_bind_whole() -> None:
    """The ramp is done when no pod waits any more, not when few do."""
    last = replace(BOUND_WELL, steps_released=3, last_step_bound=49, backlog_pods=1)
    assert next_move(ramp(), last, 50).move is Move.WAIT
    assert (
        next_move(ramp(), replace(last, last_step_bound=50, backlog_pods=0), 50).move is Move.DONE
    )


@pytest.mark.parametrize("gate", ["hold", "observe"])
def test_the_budget_ends_a_stalled_ramp(gate: Literal["hold", "observe"]) -> None:
    """A ramp that never binds ends, and says how many pods still wait."""
    stalled = replace(BOUND_WELL, steps_released=3, last_step_bound=10, backlog_pods=40)
    verdict = next_move(ramp(gate), stalled, 101)
    assert verdict.move is Move.GIVE_UP
    assert "40 waiting" in verdict.reason


views = st.builds(
    RampView,
    started_at=st.just(0.0),
    steps_released=st.integers(1, 3),
    last_released_at=st.floats(0, 50),
    last_step_sent=st.booleans(),
    last_step_pods=st.just(50),
    last_step_bound=st.integers(0, 50),
    last_step_p99_seconds=st.floats(0, 50),
    backlog_pods=st.integers(0, 150),
)


@given(views, st.floats(0, 300))
def test_hold_never_releases_into_a_backlog(view: RampView, now: float) -> None:
    """Whatever the state, a release means that the backlog is within its limit."""
    if next_move(ramp(), view, now).move is Move.RELEASE:
        assert view.backlog_pods <= 5
        assert view.last_step_sent
