"""The canary: a fixed task, repeated for some seconds, whose durations show a machine's noise."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import stdev

from loaddriver.doctor.facts import Noise
from loaddriver.judge.overload import largest
from loaddriver.record.cpu import RUNNER, CpuReading, windows
from loaddriver.run.cpu_quota import CpuQuota
from loaddriver.run.cpu_reader import CpuReader
from loaddriver.run.provenance import calibration_task
from loaddriver.run.selfaudit import clock_offset_seconds

STRETCHES = 10


@dataclass(frozen=True)
class Instruments:
    """What the canary reads, the task, which returns the CPU seconds that it took, and how long
    to repeat it in each stretch.
    """

    read_cpu: Callable[[], CpuReading]
    task: Callable[[], float] = calibration_task
    monotonic: Callable[[], float] = time.monotonic
    clock_offset: Callable[[], float | None] = clock_offset_seconds
    stretch_seconds: float = 1.0


@dataclass(frozen=True)
class Stretch:
    """Some repetitions of the task: their seconds by the clock, and of CPU."""

    elapsed: float
    cpu: float
    clock_offset: float | None


def instruments(quotas: Sequence[CpuQuota]) -> Instruments:
    """Those of this machine."""
    return Instruments(CpuReader(dict, quotas).read)


def run_canary(by: Instruments, *, has_quota: bool) -> Noise:
    """Repeat the task in stretches of equal work."""
    repeats = max(1, round(by.stretch_seconds / max(1e-4, min(by.task() for _ in range(3)))))
    before = by.read_cpu()
    stretches = [_stretch(by, repeats) for _ in range(STRETCHES)]
    return noise_of(stretches, repeats, (before, by.read_cpu()), has_quota=has_quota)


def noise_of(
    stretches: Sequence[Stretch],
    repeats: int,
    readings: tuple[CpuReading, CpuReading],
    *,
    has_quota: bool,
) -> Noise:
    """The noise that stretches of equal work, and CPU readings around them, show. Pure."""
    [window] = windows(readings)
    capacity = window.machine.all
    return Noise(
        seconds=round(window.seconds, 3),
        task_cpu_seconds=min(each.cpu for each in stretches) / repeats,
        elapsed_spread=round(_spread([each.elapsed for each in stretches]), 5),
        cpu_spread=round(_spread([each.cpu for each in stretches]), 5),
        others_share=None if has_quota else round(window.others_share, 4),
        stolen_share=round(window.machine.stolen / capacity, 4) if capacity else 0.0,
        throttled_share=round(window.throttled_share, 4),
        wait_share=round(window.waits.get(RUNNER, 0.0) / window.seconds, 4),
        clock_step_max_seconds=_largest_step([each.clock_offset for each in stretches]),
        busiest=largest(window.others, capacity) if capacity else "",
    )


def _stretch(by: Instruments, repeats: int) -> Stretch:
    began = by.monotonic()
    cpu = sum(by.task() for _ in range(repeats))
    return Stretch(by.monotonic() - began, cpu, by.clock_offset())


def _spread(values: Sequence[float]) -> float:
    return stdev(math.log(max(value, 1e-9)) for value in values)


def _largest_step(offsets: Sequence[float | None]) -> float | None:
    """The largest difference of successive readings of the clock; None without two of them."""
    known = [each for each in offsets if each is not None]
    steps = [abs(now - before) for before, now in pairwise(known)]
    return max(steps, default=None)
