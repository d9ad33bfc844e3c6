"""Computes the progress of a run for the live view."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from loaddriver.judge.percentiles import Quantile, some_quantiles
from loaddriver.profile.loading import Profile
from loaddriver.record.live_counts import LiveCounts, all_waits
from loaddriver.record.watching import now_micros
from loaddriver.run.live_view import Progress
from loaddriver.run.load_phases import RunProgress
from loaddriver.run.recorders import ClusterRecorders
from loaddriver.sizing.estimate import ramp_seconds

_RATE_WINDOW_SECONDS = 5.0
# Percentiles read every pod so far, on the cores that are being measured.
_PERCENTILE_INTERVAL_SECONDS = 10.0
# Starting, settling, judging and stopping.
_OVERHEAD_SECONDS = 20.0


@dataclass
class ProgressReporter:
    """Keeps recent counts for rates; the runner sets `shortfalls`."""

    profile: Profile
    started_at: float = field(default_factory=time.time)
    shortfalls: int | None = None
    _bound: deque[tuple[float, int]] = field(default_factory=deque)
    _percentiles_at: float = 0.0
    _last_percentiles: Sequence[Quantile] = (None, None)

    def progress(self, run_progress: RunProgress, recorders: ClusterRecorders) -> Progress:
        """The current progress."""
        now = time.time()
        live_counts_by_cluster = recorders.live_counts_by_cluster
        p50, p99 = self._percentiles(now, live_counts_by_cluster)
        bound = sum(live_counts.bound_total for live_counts in live_counts_by_cluster)
        existing, ready = recorders.nodes()
        remaining = self._remaining_seconds(run_progress, now)
        elapsed = now - self.started_at
        return Progress(
            profile=self.profile.name,
            phase=run_progress.phase,
            elapsed_seconds=elapsed,
            remaining_seconds=remaining,
            fraction_done=elapsed / (elapsed + remaining),
            pods_planned=self.profile.settings.pods,
            pods_created=sum(live_counts.created_total for live_counts in live_counts_by_cluster),
            pods_bound=bound,
            backlog=sum(live_counts.backlog for live_counts in live_counts_by_cluster),
            binds_per_second=self._rate(now, bound),
            p50=p50,
            p99=p99,
            nodes={"ready": ready, "joining": existing - ready},
            shortfalls=self.shortfalls,
            note=run_progress.detail,
            of_requests=self.profile.settings.load.mode == "cr",
        )

    def _percentiles(
        self, now: float, live_counts_by_cluster: Sequence[LiveCounts]
    ) -> Sequence[Quantile]:
        nothing_yet = self._last_percentiles[0] is None
        if nothing_yet or now - self._percentiles_at >= _PERCENTILE_INTERVAL_SECONDS:
            waits = all_waits(live_counts_by_cluster, now_micros())
            self._last_percentiles = some_quantiles(waits.bound, waits.unbound, 0.5, 0.99)
            self._percentiles_at = now
        return self._last_percentiles

    def _rate(self, now: float, bound: int) -> float:
        self._bound.append((now, bound))
        while self._bound[0][0] < now - _RATE_WINDOW_SECONDS:
            self._bound.popleft()
        (then, before), span = self._bound[0], now - self._bound[0][0]
        return (bound - before) / span if then < now else 0.0

    def _remaining_seconds(self, run_progress: RunProgress, now: float) -> float:
        """By the lengths in the profile; an adaptive ramp may take longer."""
        soak = self.profile.settings.soak.seconds
        if run_progress.soak_ends_at is not None:
            return max(0.0, run_progress.soak_ends_at - now) + _OVERHEAD_SECONDS / 4
        expected = ramp_seconds(self.profile.settings) + _OVERHEAD_SECONDS
        steps = self.profile.settings.ramp.steps
        left = (steps - run_progress.steps_released) * self.profile.settings.ramp.step_seconds
        return max(expected - (now - self.started_at), left, 1.0) + soak
