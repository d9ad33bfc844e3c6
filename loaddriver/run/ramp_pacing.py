"""When the next step of load is released: a pure function of how the last one bound.

`hold` waits while binding is behind; a step that bound slowly is recorded as a breach, and the next
one waits a step's length longer. `observe` releases at the times of the plan and records breaches,
because a ramp that waits would hide a slow release. `knee` lets each step drain, so that every step
is a trial of its own, and ends when two in a row were not kept up with.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from loaddriver.load.process import RELEASE_NOTICE_SECONDS
from loaddriver.profile.settings import Ramp


@dataclass(frozen=True)
class RampState:
    """How the ramp stands. Times are seconds on one clock.

    `last_step_*` speak of the step released last: whether all its requests were sent, how many of
    its pods were planned and bound, and the p99 of create -> bind over all of them, unbound ones
    counted with the time they have waited so far. `stuck_pods` of the backlog have waited for twice
    as long as a step's slowest may: no pace helps them. For a knee, `last_step_overload` says why
    it was not kept up with ("" if it was, None while that is open), `previous_step_overload` the
    same of the one before it.
    """

    started_at: float
    steps_released: int
    last_released_at: float
    last_step_sent: bool
    last_step_pods: int
    last_step_bound: int
    last_step_p99_seconds: float
    backlog_pods: int
    stuck_pods: int = 0
    last_step_overload: str | None = None
    previous_step_overload: str = ""


class RampAction(Enum):
    """What to do now."""

    RELEASE = "release the next step"
    WAIT = "wait"
    DONE = "all steps are released, and bound where that is waited for"
    BROKEN = "binding no longer keeps up"
    GIVE_UP = "the ramp's budget is spent"


@dataclass(frozen=True)
class RampDecision:
    """The move, why, and whether the last step was a breach of the ramp's limits.

    `due_at` is when what comes next must begin; None is as soon as can be.
    """

    action: RampAction
    reason: str
    breach: bool = False
    due_at: float | None = None


def next_action(ramp: Ramp, view: RampState, now: float) -> RampDecision:
    """The one decision of the ramp, asked again until it is neither RELEASE nor WAIT."""
    if view.steps_released == 0:
        return RampDecision(RampAction.RELEASE, "the first step", due_at=view.started_at)
    if ramp.pacing == "fixed":
        return _fixed(ramp, view, now)
    if ramp.pacing == "knee":
        return _until_knee(ramp, view, now)
    return _adaptive(ramp, view, now)


def _adaptive(ramp: Ramp, view: RampState, now: float) -> RampDecision:
    breach = view.last_step_p99_seconds > ramp.max_step_p99_seconds
    if now - view.started_at > ramp.budget_seconds:
        return RampDecision(
            RampAction.GIVE_UP, f"{_state(view)} after {ramp.budget_seconds:g} s", breach
        )
    waiting = _still_binding(ramp, view)
    if waiting:
        return RampDecision(RampAction.WAIT, waiting, breach)
    if view.steps_released == ramp.steps:
        return RampDecision(RampAction.DONE, _state(view), breach)
    pause = ramp.step_seconds * (2 if breach else 1)
    if now < view.last_released_at + pause:
        return RampDecision(
            RampAction.WAIT, _slow(ramp, view) if breach else "the step's length", breach
        )
    return RampDecision(RampAction.RELEASE, "binding keeps up", breach)


def _fixed(ramp: Ramp, view: RampState, now: float) -> RampDecision:
    """Also the soak begins when the plan says so, whatever still waits."""
    slow = view.last_step_p99_seconds > ramp.max_step_p99_seconds
    breach = slow or view.backlog_pods > ramp.max_backlog_pods
    due = view.started_at + view.steps_released * ramp.step_seconds
    if now < due - RELEASE_NOTICE_SECONDS:
        return RampDecision(RampAction.WAIT, "by the clock", breach)
    action = RampAction.RELEASE if view.steps_released < ramp.steps else RampAction.DONE
    return RampDecision(action, "by the clock", breach, due_at=due)


def _until_knee(ramp: Ramp, view: RampState, now: float) -> RampDecision:
    overload_reason = view.last_step_overload
    breach = bool(overload_reason)
    if now - view.started_at > ramp.budget_seconds:
        return RampDecision(
            RampAction.BROKEN, f"{_state(view)} after {ramp.budget_seconds:g} s", True
        )
    if overload_reason and view.previous_step_overload:
        return RampDecision(RampAction.BROKEN, overload_reason, breach)
    if overload_reason is None or not view.last_step_sent:
        return RampDecision(RampAction.WAIT, "the step is still being sent", breach)
    if view.backlog_pods > ramp.max_backlog_pods:
        return RampDecision(
            RampAction.WAIT, f"{view.backlog_pods} pods wait; the step drains", breach
        )
    if view.steps_released == ramp.steps:
        return RampDecision(RampAction.DONE, _state(view), breach)
    return RampDecision(RampAction.RELEASE, overload_reason or "binding keeps up", breach)


def _still_binding(ramp: Ramp, view: RampState) -> str:
    """Why binding is behind, or an empty text."""
    if not view.last_step_sent:
        return "the step is still being sent"
    last = view.steps_released == ramp.steps
    if last and view.last_step_bound + view.stuck_pods < view.last_step_pods:
        return _state(view)
    allowed = view.stuck_pods if last else ramp.max_backlog_pods
    if view.backlog_pods > allowed:
        return f"{view.backlog_pods} pods wait, {allowed} may"
    return ""


def _state(view: RampState) -> str:
    return (
        f"step {view.steps_released}: {view.last_step_bound} of {view.last_step_pods} pods bound, "
        f"{view.backlog_pods} waiting in all"
    )


def _slow(ramp: Ramp, view: RampState) -> str:
    return (
        f"step {view.steps_released} bound with p99 {view.last_step_p99_seconds:.1f} s, "
        f"limit {ramp.max_step_p99_seconds:g} s"
    )
