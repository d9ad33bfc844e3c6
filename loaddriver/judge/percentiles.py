"""Quantiles of waits of which some never ended.

A pod that was not bound has waited at least as long as it was observed: a right-censored sample.
Left out, it would flatter the result; the product-limit estimate (Kaplan and Meier, 1958) keeps it.
Where too few waits ended to know a quantile, the answer is a bound and says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

_ROUNDING = 1e-9
_CURVE_POINTS = 160


class AtLeast(msgspec.Struct, frozen=True, rename="camel"):
    """A quantile that lies somewhere above what was observed: at least so many seconds."""

    at_least: float


Quantile = float | AtLeast | None
"""A number; a lower bound where the data support no number; None where there is no data."""


class Quantiles(msgspec.Struct, frozen=True):
    """The usual quantiles, in seconds. `max` is a bound as soon as one wait did not end."""

    p50: Quantile
    p90: Quantile
    p99: Quantile
    max: Quantile


def quantiles(ended: Sequence[float], unended: Sequence[float] = ()) -> Quantiles:
    """Quantiles over all waits: those that ended and those that were observed without an end."""
    times, share = ended_share(ended, unended)
    longest = max((*ended, *unended), default=None)
    p50, p90, p99 = (_at(times, share, portion, longest) for portion in (0.5, 0.9, 0.99))
    if longest is None:
        return Quantiles(None, None, None, None)
    return Quantiles(p50, p90, p99, AtLeast(_tidy(longest)) if unended else _tidy(longest))


def least(quantile: Quantile) -> float | None:
    """The smallest value that the quantile can have: itself, or its bound."""
    return quantile.at_least if isinstance(quantile, AtLeast) else quantile


def ended_share(
    ended: Sequence[float], unended: Sequence[float] = ()
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Distinct times at which waits ended, and the estimated share that has ended by each.

    A wait whose observation stopped at the very moment another ended still counts as waiting then.
    """
    times, ends = np.unique(np.asarray(ended, dtype=np.float64), return_counts=True)
    every = np.sort(np.concatenate([np.asarray(ended, float), np.asarray(unended, float)]))
    at_risk = len(every) - np.searchsorted(every, times, side="left")
    share: NDArray[np.float64] = 1.0 - np.cumprod(1.0 - ends / at_risk, dtype=np.float64)
    return times, share


def curve(ended: Sequence[float], unended: Sequence[float] = ()) -> list[tuple[float, float]]:
    """Points (seconds, share ended) of the distribution, thinned out evenly in share."""
    times, share = ended_share(ended, unended)
    if len(times) > _CURVE_POINTS:
        wanted = np.linspace(share[0], share[-1], _CURVE_POINTS)
        kept = np.unique(np.minimum(np.searchsorted(share, wanted), len(times) - 1))
        times, share = times[kept], share[kept]
    return [(_tidy(t), round(float(s), 5)) for t, s in zip(times, share, strict=True)]


def _at(
    times: NDArray[np.float64], share: NDArray[np.float64], portion: float, longest: float | None
) -> Quantile:
    if longest is None:
        return None
    position = int(np.searchsorted(share, portion - _ROUNDING))
    if position == len(times):
        return AtLeast(_tidy(longest))
    return _tidy(times[position])


def _tidy(seconds: float) -> float:
    return round(float(seconds), 6)
