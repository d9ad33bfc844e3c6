"""A row of the benchmark, and what it measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

Clock = Callable[[], float]
# Beyond this a revision is slower than its base, and not only on another day.
MAX_RATIO = 1.25


@dataclass(frozen=True)
class Samples:
    """Seconds of CPU of each time that a row's work was done, in all and by part, and what the work
    consisted of.
    """

    seconds: tuple[float, ...]
    parts: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    needs: int = 0
    orders: int = 0
    short: int = 0
    #: why they say nothing; "" if they do
    invalid: str = ""


class Row(Protocol):
    """One line of the benchmark. 99 of 100 times the work may take `target_seconds` of CPU; None if
    nothing is promised.
    """

    @property
    def name(self) -> str: ...
    @property
    def target_seconds(self) -> float | None: ...

    def scaled(self, factor: float) -> Row:
        """The same with more or fewer machines, needs and clusters."""
        ...

    def measure(self, times: int, clock: Clock) -> Samples:
        """Do its work so many times."""
        ...


@dataclass(frozen=True)
class Measured:
    """A row and its samples. `ratio` is its median to that of the base, None without a base."""

    row: Row
    samples: Samples
    ratio: float | None = None

    @property
    def p50(self) -> float:
        """The median, in seconds."""
        return float(np.percentile(self.samples.seconds, 50))

    @property
    def p99(self) -> float:
        """What 99 of 100 samples do not exceed."""
        return float(np.percentile(self.samples.seconds, 99))

    @property
    def passes(self) -> bool:
        """Whether the row's target is met, if it has one."""
        target = self.row.target_seconds
        return not self.samples.invalid and (target is None or self.p99 <= target)

    @property
    def is_slower(self) -> bool:
        """Whether it takes much longer than the base."""
        return self.ratio is not None and self.ratio > MAX_RATIO

    @property
    def parts(self) -> Mapping[str, float]:
        """The median of each part, in seconds, the longest first."""
        medians = {name: float(np.median(each)) for name, each in self.samples.parts.items()}
        return dict(sorted(medians.items(), key=lambda part: -part[1]))
