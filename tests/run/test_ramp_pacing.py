"""The ramp proceeds only while binding keeps up, and gives the reason why it waits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replace_struct

from loaddriver.load.process import RELEASE_NOTICE_SECONDS
from loaddriver.plan.records import Step
from loaddriver.profile.settings import OpenStage, Ramp
from loaddriver.run.ramp_pacing import (
    OpenPacing,
    RampAction,
    RampState,
    Released,
    following_stretch,
    next_action,
    open_pacing,
    shown_pods_per_second,
)


def ramp(pacing: Literal["adaptive", "fixed", "knee"] = "adaptive") -> Ramp:
    return Ramp(
        pacing=pacing,
        steps=3,
        step_seconds=10,
        max_backlog_pods=5,
        max_step_p99_seconds=4,
        budget_seconds=100,
    )


BOUND_WELL = RampState(
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
    assert (
        next_action(ramp(), replace(BOUND_WELL, steps_released=0), 0).action is RampAction.RELEASE
    )


def test_the_next_step_follows_after_the_step_length() -> None:
    """The rate of the profile is kept even where binding is faster."""
    assert next_action(ramp(), BOUND_WELL, 9).action is RampAction.WAIT
    assert next_action(ramp(), BOUND_WELL, 10).action is RampAction.RELEASE


@pytest.mark.parametrize(
    "behind", [replace(BOUND_WELL, backlog_pods=6), replace(BOUND_WELL, last_step_sent=False)]
)
def test_a_backlog_delays_the_ramp(behind: RampState) -> None:
    """No load is added while pods wait beyond the limit or a step is still being sent."""
    assert next_action(ramp(), behind, 50).action is RampAction.WAIT


def test_a_slow_step_is_a_breach_and_the_next_waits_longer() -> None:
    """A step that drained slowly is recorded, and does not block the ramp."""
    slow = replace(BOUND_WELL, last_step_p99_seconds=5)
    assert next_action(ramp(), slow, 15).action is RampAction.WAIT
    later = next_action(ramp(), slow, 20)
    assert later.action is RampAction.RELEASE
    assert later.breach


def test_fixed_pacing_releases_on_schedule_whatever_happens() -> None:
    """A fixed schedule does not hide a slow version; the breach is recorded."""
    stuck = replace(BOUND_WELL, last_step_bound=0, backlog_pods=50, last_step_p99_seconds=20)
    decision = next_action(ramp("fixed"), stuck, 10)
    assert decision.action is RampAction.RELEASE
    assert decision.breach


@given(st.integers(1, 3), st.floats(0, 60), st.integers(0, 99), st.floats(0, 99))
def test_with_fixed_pacing_step_and_soak_times_follow_from_the_plan_alone(
    released: int, now: float, backlog: int, p99: float
) -> None:
    """Step n starts n - 1 step lengths after the first, and so does the soak."""
    view = replace(
        BOUND_WELL, steps_released=released, backlog_pods=backlog, last_step_p99_seconds=p99
    )
    decision = next_action(ramp("fixed"), view, now)
    due = 10 * released
    assert (decision.action is RampAction.WAIT) == (now < due - RELEASE_NOTICE_SECONDS)
    if decision.action is not RampAction.WAIT:
        assert decision.action is (RampAction.RELEASE if released < 3 else RampAction.DONE)
        assert decision.due_at == due


def test_all_pods_of_the_last_step_must_bind() -> None:
    """The ramp is done when no pod waits, not when few do."""
    last = replace(BOUND_WELL, steps_released=3, last_step_bound=49, backlog_pods=1)
    assert next_action(ramp(), last, 50).action is RampAction.WAIT
    assert (
        next_action(ramp(), replace(last, last_step_bound=50, backlog_pods=0), 50).action
        is RampAction.DONE
    )


def test_the_budget_ends_a_stalled_ramp() -> None:
    """A ramp that never binds ends, with the number of waiting pods."""
    stalled = replace(BOUND_WELL, steps_released=3, last_step_bound=10, backlog_pods=40)
    decision = next_action(ramp(), stalled, 101)
    assert decision.action is RampAction.GIVE_UP
    assert "40 waiting" in decision.reason


SUSTAINED = replace(BOUND_WELL, last_step_overload="")


def test_a_knee_run_drains_each_step_before_the_next() -> None:
    """Each step is an independent trial."""
    assert next_action(ramp("knee"), BOUND_WELL, 50).action is RampAction.WAIT, "not judged yet"
    assert (
        next_action(ramp("knee"), replace(SUSTAINED, backlog_pods=6), 50).action is RampAction.WAIT
    )
    assert next_action(ramp("knee"), SUSTAINED, 50).action is RampAction.RELEASE


def test_a_second_overloaded_step_confirms_the_knee() -> None:
    """One overloaded step may be noise; two in a row are the knee."""
    bad = replace(SUSTAINED, steps_released=2, last_step_overload="grew")
    assert next_action(ramp("knee"), bad, 50).action is RampAction.RELEASE
    confirmed = next_action(ramp("knee"), replace(bad, previous_step_overload="grew"), 50)
    assert confirmed.action is RampAction.BROKEN


def test_a_knee_run_ends_after_its_last_step_or_with_its_budget() -> None:
    """It never gives up: a backlog that does not drain is a result as well."""
    last = replace(SUSTAINED, steps_released=3)
    assert next_action(ramp("knee"), last, 50).action is RampAction.DONE
    assert (
        next_action(ramp("knee"), replace(last, backlog_pods=40), 101).action is RampAction.BROKEN
    )


views = st.builds(
    RampState,
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
def test_adaptive_pacing_never_releases_into_a_backlog(view: RampState, now: float) -> None:
    """Whatever the state, a release means that the backlog is within its limit."""
    if next_action(ramp(), view, now).action is RampAction.RELEASE:
        assert view.backlog_pods <= 5
        assert view.last_step_sent


def test_stuck_pods_do_not_delay_the_end_of_the_ramp() -> None:
    """A gang that no rack can hold must not use up the budget of the ramp."""
    hanging = replace(BOUND_WELL, steps_released=3, last_step_bound=47, backlog_pods=3)
    assert next_action(ramp(), hanging, 50).action is RampAction.WAIT
    assert next_action(ramp(), replace(hanging, stuck_pods=3), 50).action is RampAction.DONE
    one_more = replace(hanging, stuck_pods=3, backlog_pods=4)
    assert next_action(ramp(), one_more, 50).action is RampAction.WAIT


def staged() -> Ramp:
    """Two steps that wait for binding, and one that is offered below what they showed."""
    return replace_struct(ramp(), open_stage=OpenStage(steps=1, capacity_share=0.5))


def test_an_open_stage_begins_once_all_before_it_is_bound() -> None:
    """What is still waiting would wait in its way; until then the ramp's budget counts."""
    last_held = replace(BOUND_WELL, steps_released=2)
    behind = replace(last_held, backlog_pods=1, last_step_bound=49)
    assert next_action(staged(), behind, 50).action is RampAction.WAIT
    assert next_action(staged(), behind, 101).action is RampAction.GIVE_UP
    begins = next_action(staged(), last_held, 50)
    assert (begins.action, begins.due_at) == (RampAction.RELEASE, None)


@given(st.floats(0, 300), st.integers(0, 99), st.floats(0, 99))
def test_an_open_stage_waits_for_nothing(now: float, backlog: int, p99: float) -> None:
    """The soak follows at its time, however slow the system is by then."""
    view = replace(
        BOUND_WELL,
        steps_released=3,
        last_step_bound=0,
        backlog_pods=backlog,
        last_step_p99_seconds=p99,
        open_pacing=OpenPacing(started_at=100, stretch=2),
    )
    decision = next_action(staged(), view, now)
    due = 120
    if now < due - RELEASE_NOTICE_SECONDS:
        assert decision.action is RampAction.WAIT
    else:
        assert (decision.action, decision.due_at) == (RampAction.DONE, due)
    assert decision.breach == (backlog > 5 or p99 > 4)


@pytest.mark.parametrize(("steps", "shown"), [(1, 80), (2, 100), (3, 60), (4, 50), (5, 50)])
def test_the_later_half_of_a_ramp_shows_the_capacity(steps: int, shown: float) -> None:
    """Steps that are bound ever more slowly: their mean is more than what can still be bound. How
    long the last pods of the last step take says nothing of the rate.
    """
    bound = [(100.0, 0), (101.0, 100), (102.0, 160), (103.0, 200), (104.0, 260)][:steps]
    released = [Released(at, pods, pods=100, stretch=1) for at, pods in bound]
    last_at, last_bound = bound[-1]
    shown_rate = shown_pods_per_second(released, at=last_at + 10, bound=last_bound + 800)
    assert shown_rate == pytest.approx(shown)


def following(share: float = 0.8) -> Ramp:
    """Steps of 10 s that follow the machine."""
    return replace_struct(ramp(), capacity_share=share)


def stretch_after(waiting: int, bound: int = 50, seconds: float = 10, stretch: float = 1) -> float:
    """That of a step of 50 pods after three others, which were all played so."""
    starts = [(seconds * step, bound * step) for step in range(3)]
    released = [Released(at, pods, 50, stretch) for at, pods in starts]
    step = Step(number=4, phase="ramp", seconds=10, pods=50, events=50)
    # Of pods that waited before the first of the three, as many as the test needs.
    earlier = Released(-seconds, 0, waiting + 3 * bound - 150, stretch)
    return following_stretch(following(), step, [earlier, *released], 3 * seconds, 3 * bound)


@pytest.mark.parametrize(("bound", "seconds"), [(50, 10), (60, 10), (50, 14), (40, 10)])
def test_a_step_that_leaves_few_pods_waiting_is_followed_by_a_faster_one(
    bound: int, seconds: float
) -> None:
    """So that a faster build ends sooner, at whatever rate its pods were bound: if none waits,
    that is no capacity.
    """
    assert stretch_after(1, bound, seconds) == pytest.approx(1 / 1.1)
    assert stretch_after(1, bound, 2 * seconds, stretch=2) == pytest.approx(2 / 1.1)


@pytest.mark.parametrize(("bound", "seconds", "rate"), [(40, 10, 4), (50, 20, 2.5), (1, 10, 0.1)])
def test_steps_that_leave_pods_waiting_show_the_capacity(
    bound: int, seconds: float, rate: float
) -> None:
    """The next one takes a share of the rate at which they were bound."""
    assert stretch_after(2, bound, seconds) == pytest.approx(5 / (0.8 * rate))


@pytest.mark.parametrize("last", [0, 10, 40])
def test_the_capacity_is_that_of_three_steps(last: int) -> None:
    """Pods that come in a burst as a step ends are bound in the next: one step's rate is not the
    capacity, and a ramp that followed it would be slow for two steps.
    """
    released = [Released(10 * step, 50 * step, 50, 1) for step in range(6)]
    step = Step(number=7, phase="ramp", seconds=10, pods=50, events=50)
    stretch = following_stretch(following(), step, released, 60, 250 + last)
    assert stretch == pytest.approx(5 / (0.8 * (100 + last) / 30))


def test_a_ramp_that_follows_nothing_has_the_profiles_rate() -> None:
    """As the first step of any ramp has."""
    step = Step(number=2, phase="ramp", seconds=10, pods=50, events=50)
    assert following_stretch(following(), step, [], 0, 0) == 1
    assert following_stretch(ramp(), step, [Released(0, 0, 50, 1)], 10, 5) == 1


def test_a_step_without_pods_changes_no_rate() -> None:
    """One large object leaves the steps beside its own empty."""
    empty = Step(number=2, phase="ramp", seconds=10, pods=0, events=0)
    full = Step(number=3, phase="ramp", seconds=10, pods=50, events=50)
    first = Released(0, 0, 50, 1.5)
    assert following_stretch(following(), empty, [first], 10, 50) == 1.5
    assert following_stretch(following(), full, [first, Released(10, 50, 0, 1.5)], 20, 50) == 1.5


def test_a_machine_that_bound_nothing_shows_no_capacity() -> None:
    """The last rate is kept, and the ramp waits anyway."""
    assert stretch_after(50, bound=0, stretch=1.5) == 1.5


def test_the_next_step_of_a_stretched_one_follows_after_its_own_length() -> None:
    view = replace(BOUND_WELL, last_stretch=2)
    assert next_action(following(), view, 19).action is RampAction.WAIT
    assert next_action(following(), view, 20).action is RampAction.RELEASE


def test_a_slow_step_of_a_ramp_that_follows_the_machine_delays_nothing() -> None:
    """Its rate is that of what was bound. Nothing would be learned while no pod waits."""
    slow = next_action(following(), replace(BOUND_WELL, last_step_p99_seconds=5), 10)
    assert (slow.action, slow.breach) == (RampAction.RELEASE, True)


@pytest.mark.parametrize("capacity", [3.0, 5.0, 20.0])
def test_a_ramp_finds_the_capacity_of_its_machine(capacity: float) -> None:
    """Played against a queue: after some steps it offers at least 0.7 of what this binds, never
    more than it needs to notice, and no step leaves more than a fifth of its pods for the next.
    """
    pods, at, bound, offered = 50, 0.0, 0.0, 0.0
    released: list[Released] = []
    rates: list[float] = []
    step = Step(number=1, phase="ramp", seconds=10, pods=pods, events=50)
    for _ in range(60):
        stretch = following_stretch(following(), step, released, at, math.floor(bound))
        released.append(Released(at, math.floor(bound), pods, stretch))
        length = ramp().step_seconds * stretch
        rates.append(pods / length)
        offered += pods
        at += length
        bound = min(offered, bound + capacity * length)
    assert all(0.7 * capacity <= rate <= 1.2 * capacity for rate in rates[-30:])
    assert offered - bound <= 0.2 * pods


@pytest.mark.parametrize(
    ("shown", "stretch"), [(40.0, 2.5), (10.0, 10.0), (500.0, 1.0), (0.0, 1.0)]
)
def test_an_open_stage_stays_below_the_capacity_that_was_shown(
    shown: float, stretch: float
) -> None:
    """At the share of the profile, and never faster than the profile's own rate."""
    step = Step(number=3, phase="ramp", seconds=10, pods=500, events=50)
    assert open_pacing(staged(), step, shown, at=100) == OpenPacing(100, stretch)
