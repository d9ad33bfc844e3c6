"""Chart axes: positions of values, and ticks at round values."""

from __future__ import annotations

import math
from dataclasses import dataclass

from loaddriver.report import formatting

_STEPS = (1, 2, 5)
_CLOCK_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400)


@dataclass(frozen=True)
class Tick:
    """A tick: a value and its label."""

    value: float
    label: str


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic axis from `low` to `high`; `label` has the quantity and unit."""

    low: float
    high: float
    ticks: tuple[Tick, ...]
    label: str
    logarithmic: bool = False

    def fraction(self, value: float) -> float:
        """The position of a value, clamped: 0 at the low end, 1 at the high end."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.logarithmic:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return (at - low) / (high - low)


def amounts(highest: float, label: str, ticks: int = 4) -> Axis:
    """An axis from 0 to a round number of at least `highest`."""
    step = _round_step(max(highest, 1) / ticks)
    upper = step * math.ceil(max(highest, 1) / step)
    values = [step * position for position in range(round(upper / step) + 1)]
    return Axis(0, upper, tuple(Tick(v, formatting.count(v)) for v in values), label)


def quantities(highest: float, label: str, ticks: int = 4) -> Axis:
    """An axis from 0 to a round number of at least `highest`, which may be far below 1."""
    scale = 10.0 ** math.floor(math.log10(max(highest, 1e-9)))
    grid = amounts(100 * highest / scale, label, ticks)
    marks = tuple(Tick(v, f"{v:g}") for v in (tick.value * scale / 100 for tick in grid.ticks))
    return Axis(0, grid.high * scale / 100, marks, label)


def percents(label: str) -> Axis:
    """An axis from 0 to 100 %."""
    return Axis(0, 1, tuple(Tick(q / 4, f"{25 * q}\u202f%") for q in range(5)), label)


def clock(length_seconds: float, label: str, ticks: int) -> Axis:
    """An axis of time since the start, with ticks at round times."""
    wanted = length_seconds / ticks
    whole_hours = 3600 * math.ceil(wanted / 3600)
    step = next((each for each in _CLOCK_STEPS if each >= wanted), whole_hours)
    values = range(0, math.floor(length_seconds) + 1, step)
    marks = tuple(Tick(v, formatting.clock(v)) for v in values)
    return Axis(0, max(length_seconds, 1), marks, label)


def latencies(lowest: float, highest: float, label: str, ticks: int) -> Axis:
    """A logarithmic axis of waits: both ends matter."""
    low = _below(max(lowest, 0.001))
    high = max(_above(highest), low * 10)
    values = [v for v in _ladder(low, high, _STEPS) if low <= v <= high]
    if len(values) > ticks:
        values = [v for v in _ladder(low, high, (1,)) if low <= v <= high]
    marks = tuple(Tick(v, _latency(v)) for v in values)
    return Axis(low, high, marks, label, logarithmic=True)


def _latency(value: float) -> str:
    if value < 1:
        return f"{value * 1000:.0f}\u202fms"
    return f"{value:,.0f}\u202fs"


def _round_step(wanted: float) -> float:
    scale: float = 10.0 ** math.floor(math.log10(wanted))
    step = next((s * scale for s in _STEPS if s * scale >= wanted), 10 * scale)
    return max(1, step)


def _ladder(low: float, high: float, steps: tuple[int, ...]) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [round(step * 10.0**decade, 9) for decade in decades for step in steps]


def _below(value: float) -> float:
    return max(v for v in _ladder(value / 10, value, _STEPS) if v <= value)


def _above(value: float) -> float:
    floor = max(value, 0.01)
    return min(v for v in _ladder(floor, floor * 10, _STEPS) if v >= floor)
