"""Quantiles of right-censored waits.

A pod that was not bound has waited at least as long as it was observed. Excluding it would bias
the result; the product-limit estimate (Kaplan and Meier, 1958) includes it.

A quantile is a number only if its 95 % interval is closed, which takes a sufficient effective
sample size (368 for a p99, see `confidence`) and few censored waits; otherwise it is a lower bound.
The sample size counts uncensored waits only: a censored one can widen an interval, not narrow it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from loaddriver.judge.confidence import bracket, effective_sample_size, required_sample_size

_ROUNDING = 1e-9
_CURVE_POINTS = 160


class AtLeast(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A lower bound of a quantile, in seconds.

    `required_sample_size` and `effective_sample_size` are set if the sample is too small; both are
    0 if too many waits are censored.
    """

    at_least: float
    required_sample_size: int = 0
    effective_sample_size: int = 0


Quantile = float | AtLeast | None
"""A number; a lower bound if the data support no number; None without data."""

Interval = tuple[Quantile, Quantile]
"""Both ends of a 95 % interval; an end beyond the observed waits is a bound."""


class Quantiles(msgspec.Struct, frozen=True, rename="camel"):
    """The usual quantiles, in seconds. `max` is a bound if any wait is censored.

    The intervals cover what other objects would have found in the same run, not what another run
    finds: a machine's speed, and a queue that all share near its capacity, are one sample a run.
    """

    p50: Quantile
    p90: Quantile
    p99: Quantile
    max: Quantile
    p50_interval: Interval = (None, None)
    p99_interval: Interval = (None, None)
    p90_interval: Interval = (None, None)


def quantiles(
    ended: Sequence[float],
    censored: Sequence[float] = (),
    objects: Sequence[Hashable] | None = None,
    machines: Sequence[Hashable] | None = None,
) -> Quantiles:
    """Quantiles over all waits, ended and censored.

    `objects` and `machines` group the ended waits by object and by the machine they waited for; the
    effective sample size is the smaller of the two. Without either, each wait is a sample.
    """
    effective_size = [
        effective_sample_size(each) for each in (objects, machines) if each is not None
    ]
    waits = _Waits.of(ended, censored, min(effective_size, default=len(ended)))
    if waits.longest is None:
        return Quantiles(None, None, None, None)
    longest = _tidy(waits.longest)
    return Quantiles(
        p50=waits.quantile(0.5),
        p90=waits.quantile(0.9),
        p99=waits.quantile(0.99),
        max=AtLeast(longest) if censored else longest,
        p50_interval=waits.interval(0.5),
        p99_interval=waits.interval(0.99),
        p90_interval=waits.interval(0.9),
    )


def some_quantiles(
    ended: Sequence[float], censored: Sequence[float], *levels: float
) -> list[Quantile]:
    """The quantiles at these levels only, with each wait a sample: for frequent use."""
    waits = _Waits.of(ended, censored, len(ended))
    return [None if waits.longest is None else waits.quantile(level) for level in levels]


def estimate(ended: Sequence[float], censored: Sequence[float], level: float) -> float | None:
    """A point estimate of a quantile, however few the data: for control, not for results.

    The longest wait so far if the quantile lies beyond all ended waits; None without data.
    """
    waits = _Waits.of(ended, censored, len(ended))
    return waits.longest if (found := waits.at(level)) is None else found


def lower_bound(quantile: Quantile) -> float | None:
    """The quantile, or its lower bound."""
    return quantile.at_least if isinstance(quantile, AtLeast) else quantile


def kaplan_meier_cdf(
    ended: Sequence[float], censored: Sequence[float] = ()
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Distinct times of ended waits, and the estimated cumulative share at each.

    A wait censored at the time another ended still counts as waiting then.
    """
    times, ends = np.unique(np.asarray(ended, dtype=np.float64), return_counts=True)
    ended_before = np.cumsum(ends) - ends
    gone_before = np.searchsorted(np.sort(np.asarray(censored, float)), times, side="left")
    at_risk = len(ended) + len(censored) - ended_before - gone_before
    cdf: NDArray[np.float64] = 1.0 - np.cumprod(1.0 - ends / at_risk, dtype=np.float64)
    return times, cdf


def curve(ended: Sequence[float], censored: Sequence[float] = ()) -> list[tuple[float, float]]:
    """Points (seconds, share ended) of the distribution, thinned evenly by share."""
    times, cdf = kaplan_meier_cdf(ended, censored)
    if len(times) > _CURVE_POINTS:
        wanted = np.linspace(cdf[0], cdf[-1], _CURVE_POINTS)
        kept = np.unique(np.minimum(np.searchsorted(cdf, wanted), len(times) - 1))
        times, cdf = times[kept], cdf[kept]
    return [(_tidy(t), round(float(s), 5)) for t, s in zip(times, cdf, strict=True)]


@dataclass(frozen=True)
class _Waits:
    """The estimated distribution, the number of ended waits, their effective sample size, and the
    longest wait.
    """

    times: NDArray[np.float64]
    cdf: NDArray[np.float64]
    ended: int
    effective_sample_size: int
    longest: float | None

    @classmethod
    def of(cls, ended: Sequence[float], censored: Sequence[float], effective_size: int) -> _Waits:
        longest = max(
            (float(np.max(waits)) for waits in (ended, censored) if len(waits)), default=None
        )
        return cls(*kaplan_meier_cdf(ended, censored), len(ended), effective_size, longest)

    def quantile(self, level: float) -> Quantile:
        found, (low, high) = self.at(level), self.interval(level)
        if found is None:
            return self._beyond()
        if isinstance(high, AtLeast):
            return AtLeast(
                lower_bound(low) or 0.0, high.required_sample_size, high.effective_sample_size
            )
        return _tidy(found)

    def interval(self, level: float) -> Interval:
        """Map sample ranks to ranks among the waits, rounded outwards."""
        lower, upper = bracket(self.effective_sample_size, level)
        low: Quantile = 0.0  # waits are not negative
        high: Quantile = self._beyond(required_sample_size(level))
        if lower:
            low = self._at_rank((lower - 1) * self.ended // self.effective_sample_size + 1)
        if upper:
            high = self._at_rank(-(-upper * self.ended // self.effective_sample_size))
        return low, high

    def _at_rank(self, rank: int) -> Quantile:
        found = self.at(rank / self.ended)
        return self._beyond() if found is None else _tidy(found)

    def _beyond(self, required_sample_size: int = 0) -> AtLeast:
        return AtLeast(
            _tidy(self.longest or 0.0),
            required_sample_size,
            self.effective_sample_size if required_sample_size else 0,
        )

    def at(self, level: float) -> float | None:
        """The estimate; None if it lies beyond the last ended wait."""
        position = int(np.searchsorted(self.cdf, level - _ROUNDING))
        return None if position == len(self.times) else float(self.times[position])


def _tidy(seconds: float) -> float:
    return round(float(seconds), 6)
