"""Finds the knee: the rate at which binding falls behind the offered load. Pure.

In a stable queue the backlog grows until departures match arrivals, then stays. A step is therefore
judged by its second half: if the backlog still grows by more than the tolerance, binding is slower
than the arrivals. A step whose p99 exceeds the limit is overloaded as well.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

import msgspec

from loaddriver.plan.records import Plan, Step
from loaddriver.profile.settings import Ramp

# Of the pods offered in half a step: arrivals are bursty, as an object brings all its pods.
_GROWTH_TOLERANCE = 0.1


class Knee(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a knee run.

    `pods_per_second` is the rate of the last sustained step, 0 if there is none. `pods_bound`
    counts all pods of the run. `broke_at_step` is the first overloaded step; None if every step was
    sustained, and the knee is above the highest rate.
    """

    pods_per_second: float
    pods_bound: int
    steps_sustained: int
    broke_at_step: int | None
    reason: str


class StepTrial:
    """One step of a knee run, observed while it is sent. Times are Unix seconds."""

    def __init__(self, plan: Plan, step: Step, released_at: float) -> None:
        own = [level for level in plan.levels if level.step == step.number]
        self._offsets = [level.offset_seconds for level in own]
        before = sum(each.pods for each in plan.steps if each.number < step.number)
        self._asked = list(accumulate((level.replicas for level in own), initial=before))
        self._half_at = released_at + step.seconds / 2
        self._end_at = released_at + step.seconds
        self._released_at = released_at
        self._half: int | None = None
        self.growth_pods: int | None = None

    def observe(self, now: float, bound_pods: int) -> None:
        """Record the total of bound pods; sets `growth_pods` once it is known."""
        due = self._asked[bisect_right(self._offsets, now - self._released_at)]
        if self._half is None and now >= self._half_at:
            self._half = due - bound_pods
        if self.growth_pods is None and self._half is not None and now >= self._end_at:
            self.growth_pods = due - bound_pods - self._half


def overload_reason(ramp: Ramp, step: Step, growth_pods: int, p99_seconds: float) -> str:
    """Why a step was not sustained, or an empty text.

    `growth_pods` is the growth of the backlog over the second half of the step.
    """
    allowed = allowed_growth(ramp, step)
    if growth_pods > allowed:
        return (
            f"step {step.number} offered {step.pods_per_second:.0f} pods/s, and the backlog grew "
            f"by {growth_pods} pods over its second half (limit {allowed:.0f})"
        )
    if p99_seconds > ramp.max_step_p99_seconds:
        return (
            f"step {step.number} offered {step.pods_per_second:.0f} pods/s, and its pods bound "
            f"with p99 {p99_seconds:.1f} s (limit {ramp.max_step_p99_seconds:g} s)"
        )
    return ""


def allowed_growth(ramp: Ramp, step: Step) -> float:
    """The limit of `growth_pods` for a step."""
    return ramp.max_backlog_pods + _GROWTH_TOLERANCE * step.pods / 2


def find_knee(steps: Sequence[Step], overloads: Mapping[int, str], pods_bound: int) -> Knee:
    """Find the knee from the `steps` that were played and the reasons why some were overloaded.

    It is below the first overloaded step whose next step was overloaded too. A single overloaded
    step followed by a sustained one does not count; an overloaded last step does.
    """
    numbers = [step.number for step in steps]
    last = numbers[-1]
    broke = next((n for n in numbers if n in overloads and (n == last or n + 1 in overloads)), None)
    sustained = [step for step in steps if broke is None or step.number < broke]
    return Knee(
        pods_per_second=sustained[-1].pods_per_second if sustained else 0.0,
        pods_bound=pods_bound,
        steps_sustained=sum(step.number not in overloads for step in sustained),
        broke_at_step=broke,
        reason=_reason(broke, last, overloads),
    )


def _reason(broke: int | None, last: int, overloads: Mapping[int, str]) -> str:
    if broke is None:
        return f"no knee found: all {last} steps were sustained"
    if broke == last:
        return f"{overloads[broke]}; it was the last step, so none confirmed it"
    return f"{overloads[broke]}; confirmed by step {broke + 1}"
