"""The knee is found from the growth of the backlog in each faster step."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaddriver.plan.records import Level, Plan, PlanHeader, Step
from loaddriver.profile.settings import Ramp
from loaddriver.run.knee import StepTrial, allowed_growth, find_knee, overload_reason

RAMP = Ramp(
    pacing="knee",
    steps=5,
    step_seconds=10,
    max_backlog_pods=20,
    max_step_p99_seconds=8,
    budget_seconds=300,
)


def step(number: int) -> Step:
    """A step that offers ten times its number of pods a second, one object each 0.1 s."""
    return Step(number=number, phase="ramp", seconds=10, pods=100 * number, events=100)


@cache
def plan() -> Plan:
    header = PlanHeader(profile="knee", seed=1, clusters=1, pods=1500)
    levels = tuple(
        Level(
            cluster=0,
            workload=f"w{number}-{position}",
            step=number,
            offset_seconds=position / 10,
            replicas=number,
        )
        for number in range(1, 6)
        for position in range(100)
    )
    return Plan(header, tuple(step(n) for n in range(1, 6)), (), levels, ())


def growth(number: int, bound_at: Callable[[float], float]) -> int:
    """The growth of a step's backlog, observed four times a second."""
    trial = StepTrial(plan(), step(number), released_at=1000)
    for quarter in range(60):
        trial.observe(1000 + quarter / 4, round(bound_at(quarter / 4)))
        assert (trial.growth_pods is None) == (quarter < 40)
    assert trial.growth_pods is not None
    return trial.growth_pods


@given(st.integers(1, 5), st.floats(0, 4))
def test_a_stable_queue_is_not_overloaded(number: int, wait_seconds: float) -> None:
    """A constant wait fills the queue in the first half and leaves it level in the second."""
    before = sum(100 * n for n in range(1, number))
    rate = 10 * number

    def bound(at: float) -> float:
        return before + rate * min(max(0.0, at - wait_seconds), 10)

    assert overload_reason(RAMP, step(number), growth(number, bound), wait_seconds) == ""


@given(st.integers(2, 5), st.floats(0.1, 0.8))
def test_a_slow_server_lets_the_backlog_grow(number: int, speed: float) -> None:
    """It grows by arrivals minus departures, and the reason has the number."""
    before = sum(100 * n for n in range(1, number))
    rate = 10 * number * speed
    grown = growth(number, lambda at: before + rate * min(at, 10))
    assert grown == pytest.approx(10 * number * (1 - speed) * 5, abs=2 + number)
    reason = overload_reason(RAMP, step(number), grown, 0.0)
    assert (reason != "") == (grown > allowed_growth(RAMP, step(number)))
    if reason:
        assert f"step {number} offered {10 * number} pods/s" in reason
        assert f"grew by {grown} pods" in reason


def test_a_p99_above_its_limit_is_an_overload_even_with_a_constant_backlog() -> None:
    """A queue may be stable and useless."""
    assert "p99 9.0 s (limit 8 s)" in overload_reason(RAMP, step(3), 0, 9.0)


def test_the_knee_is_the_last_step_before_two_overloaded_ones() -> None:
    """It has the rate of that step, and the reason why the next was overloaded."""
    knee = find_knee([step(n) for n in range(1, 5)], {3: "step 3 broke", 4: "so did 4"}, 800)
    assert (knee.pods_per_second, knee.steps_sustained, knee.broke_at_step) == (20, 2, 3)
    assert (knee.pods_bound, knee.reason) == (800, "step 3 broke; confirmed by step 4")


def test_a_single_overloaded_step_is_no_knee() -> None:
    """It counts as not sustained, and the ramp continues."""
    knee = find_knee([step(n) for n in range(1, 6)], {2: "a failure"}, 1500)
    assert (knee.pods_per_second, knee.steps_sustained, knee.broke_at_step) == (50, 4, None)
    assert "no knee found" in knee.reason


def test_an_overloaded_last_step_counts() -> None:
    """Otherwise the result would depend on where the profile ends."""
    knee = find_knee([step(n) for n in range(1, 6)], {5: "step 5 broke"}, 1400)
    assert (knee.pods_per_second, knee.broke_at_step) == (40, 5)
    assert "it was the last step" in knee.reason


def test_an_overloaded_first_step_leaves_a_rate_of_zero() -> None:
    """Zero, not the slowest rate that was tried."""
    knee = find_knee([step(1), step(2)], {1: "broke", 2: "broke"}, 90)
    assert (knee.pods_per_second, knee.steps_sustained) == (0, 0)
