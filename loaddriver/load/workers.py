"""What each worker of a load did, as its lines in the results file say. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from loaddriver.distributions import nearest_rank
from loaddriver.load.files import EventResult, WorkerReading
from loaddriver.plan.records import SETUP_STEP

MAX_CLOCK_OFFSET_SECONDS = 0.05
"""By how much clocks may disagree: due times are of the runner's, and workers go by their own."""
# Over less time, a worker's CPU time is too coarse to be a rate.
_MIN_WINDOW_SECONDS = 5.0


@dataclass(frozen=True)
class WorkerRecord:
    """What one worker did.

    `failed` counts events without effect after all attempts, `retried` those that needed more than
    one. Lateness excludes the set-up step; None without another event. Its clock is ahead of the
    runner's by between `clock_offset_bounds`, in seconds (behind if negative), as long as that did
    not change. `busiest_cores` and `worst_wait_share` are of its worst ten seconds or so: how many
    cores it used, and for which share of the time it had none although it was ready to run.
    `elsewhere` says that it ran on another host than the runner.
    """

    name: str
    events: int
    sent: int = 0
    failed: int = 0
    retried: int = 0
    max_lateness_seconds: float | None = None
    p99_lateness_seconds: float | None = None
    cpu_seconds: float = 0.0
    busiest_cores: float = 0.0
    worst_wait_share: float = 0.0
    clock_offset_bounds: tuple[float, float] | None = None
    elsewhere: bool = False

    @property
    def proven_clock_offset_seconds(self) -> float | None:
        """The least offset that its clock must have had at some time; 0 if it may have none."""
        if self.clock_offset_bounds is None:
            return None
        low, high = self.clock_offset_bounds
        return max(0.0, low, -high)

    @property
    def largest_clock_offset_seconds(self) -> float | None:
        """The largest offset that its clock can have had if it was constant."""
        if self.clock_offset_bounds is None:
            return None
        return max(map(abs, self.clock_offset_bounds))


@dataclass
class WorkerTally:
    """Counts what one worker has done so far."""

    events: int = 0
    sent: int = 0
    failed: int = 0
    retried: int = 0
    lateness: list[float] = field(default_factory=list)
    readings: list[WorkerReading] = field(default_factory=list)

    def take(self, result: EventResult) -> None:
        """Count one more event."""
        self.sent += 1
        self.failed += not result.ok
        self.retried += result.attempts > 1
        if result.step > SETUP_STEP:
            self.lateness.append(result.lateness_seconds)

    def record(self, name: str, *, elsewhere: bool) -> WorkerRecord:
        """What is known so far."""
        windows = list(_windows(self.readings))
        return WorkerRecord(
            name=name,
            events=self.events,
            sent=self.sent,
            failed=self.failed,
            retried=self.retried,
            max_lateness_seconds=max(self.lateness, default=None),
            p99_lateness_seconds=nearest_p99(sorted(self.lateness)),
            cpu_seconds=self.readings[-1].cpu_seconds - self.readings[0].cpu_seconds
            if self.readings
            else 0.0,
            busiest_cores=max((cores for cores, _ in windows), default=0.0),
            worst_wait_share=max((share for _, share in windows), default=0.0),
            clock_offset_bounds=_offset_bounds(self.readings),
            elsewhere=elsewhere,
        )


def nearest_p99(ascending: Sequence[float]) -> float | None:
    """The 99th percentile by the nearest rank; None of nothing."""
    return nearest_rank(ascending, 0.99) if ascending else None


def _offset_bounds(readings: Sequence[WorkerReading]) -> tuple[float, float] | None:
    """Every exchange bounds the offset, and all together bound it best."""
    if not readings:
        return None
    lows, highs = zip(*(reading.offset_bounds for reading in readings), strict=True)
    return max(lows), min(highs)


def _windows(readings: Iterable[WorkerReading]) -> Iterable[tuple[float, float]]:
    """The cores used, and the share of time waited for one, between readings far enough apart."""
    began: WorkerReading | None = None
    for reading in readings:
        began = began or reading
        seconds = reading.at - began.at
        if seconds >= _MIN_WINDOW_SECONDS:
            used = reading.cpu_seconds - began.cpu_seconds
            yield used / seconds, (reading.wait_seconds - began.wait_seconds) / seconds
            began = reading
