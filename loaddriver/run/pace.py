"""How the run is going, for the live view."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from loaddriver.judge.percentiles import Quantile, some_quantiles
from loaddriver.live import Progress
from loaddriver.needs import ramp_seconds
from loaddriver.profile import Profile
from loaddriver.record.tally import Tally, all_waits
from loaddriver.record.watching import now_micros
from loaddriver.run.phases import Course
from loaddriver.run.watchers import Watchers

_RATE_WINDOW_SECONDS = 5.0
# It looks at every pod there ever was, on the cores that are being measured.
_SPREAD_EVERY_SECONDS = 10.0
# What a run takes beside its ramp and its soak: starting, settling, judging, stopping.
_AROUND_SECONDS = 20.0


@dataclass
class Pace:
    """Remembers just enough of the past to give a rate; `shortfalls` is set by whoever knows."""

    profile: Profile
    started_at: float = field(default_factory=time.time)
    shortfalls: int | None = None
    _bound: deque[tuple[float, int]] = field(default_factory=deque)
    _spread_at: float = 0.0
    _last_spread: Sequence[Quantile] = (None, None)

    def progress(self, course: Course, watchers: Watchers) -> Progress:
        """The run at this moment."""
        now = time.time()
        tallies = watchers.tallies
        p50, p99 = self._spread(now, tallies)
        bound = sum(tally.bound_total for tally in tallies)
        there, ready = watchers.nodes()
        remaining = self._remaining_seconds(course, now)
        elapsed = now - self.started_at
        return Progress(
            profile=self.profile.name,
            phase=course.phase,
            elapsed_seconds=elapsed,
            remaining_seconds=remaining,
            portion_done=elapsed / (elapsed + remaining),
            pods_planned=self.profile.settings.pods,
            pods_created=sum(tally.created_total for tally in tallies),
            pods_bound=bound,
            backlog=sum(tally.backlog for tally in tallies),
            binds_per_second=self._rate(now, bound),
            p50=p50,
            p99=p99,
            nodes={"ready": ready, "joining": there - ready},
            shortfalls=self.shortfalls,
            note=course.detail,
            of_requests=self.profile.settings.load.mode == "cr",
        )

    def _spread(self, now: float, tallies: Sequence[Tally]) -> Sequence[Quantile]:
        nothing_yet = self._last_spread[0] is None
        if nothing_yet or now - self._spread_at >= _SPREAD_EVERY_SECONDS:
            waits = all_waits(tallies, now_micros())
            self._last_spread = some_quantiles(waits.bound, waits.unbound, 0.5, 0.99)
            self._spread_at = now
        return self._last_spread

    def _rate(self, now: float, bound: int) -> float:
        self._bound.append((now, bound))
        while self._bound[0][0] < now - _RATE_WINDOW_SECONDS:
            self._bound.popleft()
        (then, before), span = self._bound[0], now - self._bound[0][0]
        return (bound - before) / span if then < now else 0.0

    def _remaining_seconds(self, course: Course, now: float) -> float:
        """The profile's own lengths; a ramp that is held takes longer than this knows."""
        soak = self.profile.settings.soak.seconds
        if course.soak_ends_at is not None:
            return max(0.0, course.soak_ends_at - now) + _AROUND_SECONDS / 4
        expected = ramp_seconds(self.profile.settings) + _AROUND_SECONDS
        steps = self.profile.settings.ramp.steps
        left = (steps - course.steps_released) * self.profile.settings.ramp.step_seconds
        return max(expected - (now - self.started_at), left, 1.0) + soak
