"""Student's t, exact tests of counts, and nearest ranks. Pure; what comes with Python suffices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

_TINY = 1e-300
_MAX_TERMS = 10_000
_PRECISION = 1e-14
_BISECTIONS = 200


def nearest_rank(ascending: Sequence[float], level: float) -> float:
    """The quantile of `level` (0 < level <= 1) of one or more values: one that occurred."""
    return ascending[math.ceil(level * len(ascending)) - 1]


def t_tail(value: float, degrees: int) -> float:
    """The probability that Student's t with these degrees of freedom exceeds `value`."""
    if math.isinf(value):
        return 0.0 if value > 0 else 1.0
    half = 0.5 * _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + value * value))
    return half if value >= 0 else 1 - half


@lru_cache(maxsize=4096)
def t_quantile(tail: float, degrees: int) -> float:
    """The value that Student's t exceeds with probability `tail`, at most 0.5."""
    low, high = 0.0, 1.0
    while t_tail(high, degrees) > tail:
        low, high = high, 2 * high
    return _bisected(low, high, lambda value: t_tail(value, degrees) > tail)


@lru_cache(maxsize=65536)
def fisher_tail(head: int, base: int, head_runs: int, base_runs: int) -> float:
    """Fisher's exact test, one-sided: the probability of `head` or more of the affected runs.

    Given that `head + base` of all runs are affected, and that each is as likely to be.
    """
    affected, runs = head + base, head_runs + base_runs
    most = min(affected, head_runs)
    ways = sum(
        math.comb(head_runs, k) * math.comb(base_runs, affected - k) for k in range(head, most + 1)
    )
    return ways / math.comb(runs, affected)


def binomial_tail(successes: int, trials: int) -> float:
    """The probability of so many heads or more of a fair coin's `trials`."""
    return float(sum(math.comb(trials, k) for k in range(successes, trials + 1)) / 2**trials)


def proportion_interval(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """The exact (Clopper-Pearson) interval of a probability."""
    error = (1 - level) / 2
    lower = 0.0 if successes == 0 else _beta_quantile(error, successes, trials - successes + 1)
    if successes == trials:
        return lower, 1.0
    return lower, _beta_quantile(1 - error, successes + 1, trials - successes)


def _beta_quantile(probability: float, a: float, b: float) -> float:
    return _bisected(0.0, 1.0, lambda value: _incomplete_beta(a, b, value) < probability)


def _bisected(low: float, high: float, is_too_low: Callable[[float], bool]) -> float:
    """The lowest value that is not too low, as precisely as numbers are."""
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if is_too_low(middle):
            low = middle
        else:
            high = middle
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction of the other side converges faster
        return 1 - _incomplete_beta(b, a, 1 - x)
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(logarithm + a * math.log(x) + b * math.log1p(-x)) / a
    return front * _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    value, c = 1.0, 1.0
    d = 1 / _nonzero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _nonzero(1 + term * d)
            c = _nonzero(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < _PRECISION:
            break
    return value


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
