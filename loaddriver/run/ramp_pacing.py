"""Decides when the next ramp step is released, as a pure function of how the last one bound.

`adaptive` waits while binding is behind; a step above the p99 limit is recorded as a breach and
delays the next one by a further step length. It may follow the capacity of the machine: then a
breach delays nothing, and its steps get faster until many pods wait as the next one begins. `fixed`
releases on a fixed schedule and records breaches: a ramp that waits would hide a slow version. An
adaptive ramp may end with an open stage, which is on a fixed schedule, below the capacity that the
ramp has shown. `knee` lets each step drain, so that every step is an independent trial, and ends
after two overloaded steps in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from loaddriver.load.process import RELEASE_NOTICE_SECONDS
from loaddriver.plan.records import Step
from loaddriver.profile.settings import Ramp

# Binding is behind if more than this share of `maxBacklogPods` waits as the next step begins.
_BEHIND_SHARE = 0.25
_RATE_STEPS = 3
_SPEED_UP = 1.1


@dataclass(frozen=True)
class Released:
    """The release of a held step: its time, the pods bound by then, the pods that it asks for, and
    the factor by which it is longer than `stepSeconds`.
    """

    at: float
    bound: int
    pods: int
    stretch: float


def following_stretch(
    ramp: Ramp, step: Step, released: Sequence[Released], at: float, bound: int
) -> float:
    """The factor by which `step` is longer than `stepSeconds`, if it follows those that were
    released at time `at`, when so many pods are bound.

    A rate is taken for the capacity only if pods wait: else it is that of what was offered. It is
    that of several steps, as what a burst brings at a step's end is bound in the next one.
    """
    if ramp.capacity_share is None or not released:
        return 1.0
    last = released[-1]
    if not (step.pods and last.pods):
        return last.stretch  # a large object, whose step is that of its middle, leaves others empty
    waiting = sum(each.pods for each in released) - bound
    if waiting > _BEHIND_SHARE * ramp.max_backlog_pods:
        first = released[-_RATE_STEPS:][0]
        allowed = ramp.capacity_share * (bound - first.bound) / (at - first.at)
    else:
        allowed = _SPEED_UP * last.pods / (ramp.step_seconds * last.stretch)
    return step.pods_per_second / allowed if allowed else last.stretch


@dataclass(frozen=True)
class OpenPacing:
    """The schedule of an open stage: its start, and the factor by which its steps are longer than
    `stepSeconds`.
    """

    started_at: float
    stretch: float


def open_pacing(ramp: Ramp, step: Step, shown_pods_per_second: float, at: float) -> OpenPacing:
    """The schedule of the open stage that begins with `step`, below the rate shown before it."""
    assert ramp.open_stage is not None
    allowed = ramp.open_stage.capacity_share * shown_pods_per_second
    # A ramp of which nothing could be bound has shown none.
    return OpenPacing(at, max(1.0, step.pods_per_second / allowed) if allowed else 1.0)


def shown_pods_per_second(released: Sequence[Released], at: float, bound: int) -> float:
    """The rate at which pods were bound in the later half of the steps that have ended.

    A pod costs more the more there are, so the mean of all steps is more than what can still be
    bound; that of the last few differs by half between two runs. The last step counts only if it
    is the only one: nothing follows it, so that it ends with its slowest pod.
    """
    first, last = released[(len(released) - 1) // 2], released[-1]
    if first is last:
        return (bound - first.bound) / (at - first.at)
    return (last.bound - first.bound) / (last.at - first.at)


@dataclass(frozen=True)
class RampState:
    """The state of the ramp. Times are seconds on one clock.

    `last_step_*` describe the step released last: whether all its requests were sent, how many of
    its pods were planned and bound, and the p99 of due -> bind, where unbound pods count with
    their wait so far. `stuck_pods` have waited for more than twice the p99 limit; slower pacing
    does not help them. In a knee run, `last_step_overload` is why the step was not sustained ("" if
    it was, None while unknown), `previous_step_overload` the same for the step before.
    `last_stretch` is the factor by which the last step is longer than `stepSeconds`. `open_pacing`
    is set from the first step of the open stage on.
    """

    started_at: float
    steps_released: int
    last_released_at: float
    last_step_sent: bool
    last_step_pods: int
    last_step_bound: int
    last_step_p99_seconds: float
    backlog_pods: int
    last_stretch: float = 1.0
    stuck_pods: int = 0
    last_step_overload: str | None = None
    previous_step_overload: str = ""
    open_pacing: OpenPacing | None = None


class RampAction(Enum):
    """What the ramp does next."""

    RELEASE = "release the next step"
    WAIT = "wait"
    DONE = "all steps are released, and bound if pacing waits for that"
    BROKEN = "binding falls behind"
    GIVE_UP = "the ramp's budget is spent"


@dataclass(frozen=True)
class RampDecision:
    """The next action, its reason, and whether the last step breached the ramp's limits.

    `due_at` is when the next step or the soak must start; None is as soon as possible.
    """

    action: RampAction
    reason: str
    breach: bool = False
    due_at: float | None = None


def next_action(ramp: Ramp, view: RampState, now: float) -> RampDecision:
    """Decide the next action; called until it is neither RELEASE nor WAIT."""
    if view.steps_released == 0:
        return RampDecision(RampAction.RELEASE, "the first step", due_at=view.started_at)
    if ramp.pacing == "fixed":
        return _fixed(ramp, view, now)
    if ramp.pacing == "knee":
        return _until_knee(ramp, view, now)
    return _adaptive(ramp, view, now)


def _adaptive(ramp: Ramp, view: RampState, now: float) -> RampDecision:
    if view.open_pacing is not None:
        return _open(ramp, view, view.open_pacing, now)
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
    if view.steps_released == ramp.held_steps:
        return RampDecision(RampAction.RELEASE, "the open stage begins", breach)
    # A ramp that follows the machine has its rate from what was bound, however late that was.
    slowed = breach and ramp.capacity_share is None
    pause = ramp.step_seconds * view.last_stretch * (2 if slowed else 1)
    if now < view.last_released_at + pause:
        return RampDecision(
            RampAction.WAIT, _slow(ramp, view) if slowed else "waiting for the step length", breach
        )
    return RampDecision(RampAction.RELEASE, "binding keeps up", breach)


def _fixed(ramp: Ramp, view: RampState, now: float) -> RampDecision:
    due = view.started_at + view.steps_released * ramp.step_seconds
    return _on_schedule(ramp, view, due, now)


def _open(ramp: Ramp, view: RampState, pacing: OpenPacing, now: float) -> RampDecision:
    released = view.steps_released - ramp.held_steps
    due = pacing.started_at + released * ramp.step_seconds * pacing.stretch
    return _on_schedule(ramp, view, due, now)


def _on_schedule(ramp: Ramp, view: RampState, due: float, now: float) -> RampDecision:
    """The next step, or the soak, starts when it is `due`, even if pods still wait."""
    slow = view.last_step_p99_seconds > ramp.max_step_p99_seconds
    breach = slow or view.backlog_pods > ramp.max_backlog_pods
    if now < due - RELEASE_NOTICE_SECONDS:
        return RampDecision(RampAction.WAIT, "on a fixed schedule", breach)
    action = RampAction.RELEASE if view.steps_released < ramp.steps else RampAction.DONE
    return RampDecision(action, "on a fixed schedule", breach, due_at=due)


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
            RampAction.WAIT, f"{view.backlog_pods} pods waiting; draining the step", breach
        )
    if view.steps_released == ramp.steps:
        return RampDecision(RampAction.DONE, _state(view), breach)
    return RampDecision(RampAction.RELEASE, overload_reason or "binding keeps up", breach)


def _still_binding(ramp: Ramp, view: RampState) -> str:
    """Why binding is behind, or an empty text."""
    if not view.last_step_sent:
        return "the step is still being sent"
    last = view.steps_released == ramp.held_steps
    if last and view.last_step_bound + view.stuck_pods < view.last_step_pods:
        return _state(view)
    allowed = view.stuck_pods if last else ramp.max_backlog_pods
    if view.backlog_pods > allowed:
        return f"{view.backlog_pods} pods waiting, limit {allowed}"
    return ""


def _state(view: RampState) -> str:
    return (
        f"step {view.steps_released}: {view.last_step_bound} of {view.last_step_pods} pods bound, "
        f"{view.backlog_pods} waiting in total"
    )


def _slow(ramp: Ramp, view: RampState) -> str:
    return (
        f"step {view.steps_released} bound with p99 {view.last_step_p99_seconds:.1f} s, "
        f"limit {ramp.max_step_p99_seconds:g} s"
    )
