"""Where binding stops keeping up: what each faster step of a knee run says, and the result. Pure.

In a stable queue the backlog grows until as many pods leave as arrive, and then stays. A step is
therefore judged by its second half: a backlog that still grows by more than the tolerance belongs
to a queue that is slower than its arrivals. A step whose pods wait too long (p99) has broken, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

import msgspec

from loaddriver.plan.records import Plan, Step
from loaddriver.profile.settings import Ramp

# Of the pods offered in half a step: arrivals are lumpy, because an object brings all its pods.
_GROWTH_TOLERANCE = 0.1


class Knee(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a knee run.

    `pods_per_second` is what the last step before the break offered, 0 if the first one broke;
    `pods_bound` counts all until the break. `broke_at_step` is None when every step was kept up
    with: then the knee lies higher than the profile reaches.
    """

    pods_per_second: float
    pods_bound: int
    steps_sustained: int
    broke_at_step: int | None
    reason: str


class StepTrial:
    """One step of a knee run, watched while it is sent; moments are Unix seconds."""

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
        """Takes note of how many pods are bound in all; `growth_pods` is set once it is known."""
        due = self._asked[bisect_right(self._offsets, now - self._released_at)]
        if self._half is None and now >= self._half_at:
            self._half = due - bound_pods
        if self.growth_pods is None and self._half is not None and now >= self._end_at:
            self.growth_pods = due - bound_pods - self._half


def overload_reason(ramp: Ramp, step: Step, growth_pods: int, p99_seconds: float) -> str:
    """Why a step was not kept up with, or an empty text.

    `growth_pods` is by how much the backlog grew over the second half of the step.
    """
    allowed = allowed_growth(ramp, step)
    if growth_pods > allowed:
        return (
            f"step {step.number} offered {step.pods_per_second:.0f} pods/s, and the backlog grew "
            f"by {growth_pods} pods over its second half ({allowed:.0f} may be)"
        )
    if p99_seconds > ramp.max_step_p99_seconds:
        return (
            f"step {step.number} offered {step.pods_per_second:.0f} pods/s, and its pods bound "
            f"with p99 {p99_seconds:.1f} s ({ramp.max_step_p99_seconds:g} s may be)"
        )
    return ""


def allowed_growth(ramp: Ramp, step: Step) -> float:
    """By how many pods the backlog may grow over the second half of a step."""
    return ramp.max_backlog_pods + _GROWTH_TOLERANCE * step.pods / 2


def find_knee(steps: Sequence[Step], overloads: Mapping[int, str], pods_bound: int) -> Knee:
    """The knee, from the ramp's `steps` that were played and what was wrong with some of them.

    It lies below the first step in trouble that the next one confirmed. A single bad step that a
    faster one refutes is none; a bad last step counts, as nothing refutes it.
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
        return f"all {last} steps were kept up with; the knee lies higher"
    if broke == last:
        return f"{overloads[broke]}; no further step was there to confirm it"
    return f"{overloads[broke]}; confirmed by step {broke + 1}"
