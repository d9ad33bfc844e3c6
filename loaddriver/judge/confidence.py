"""Which of n ordered samples bracket a quantile: the binomial argument, free of any distribution.

Of n independent samples, the number that lie below the quantile p is binomial (n, p), whatever the
samples are. So the sample of rank l lies below the quantile with the probability that at least l of
n do, and the sample of rank u above it with the probability that fewer than u do. Ranks are chosen
so that each end errs in at most 2.5 % of cases: together an interval of 95 %. If even the largest
of n samples is not surely above the quantile (p ** n > 2.5 %), n samples do not know it.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

ERROR_PER_END = 0.025
_SPAN_DEVIATIONS = 10


def samples_needed(portion: float) -> int:
    """The fewest samples whose largest is surely above the quantile: 368 for p99, 36 for p90."""
    return math.ceil(math.log(ERROR_PER_END) / math.log(portion))


@lru_cache(maxsize=4096)
def bracket(samples: int, portion: float) -> tuple[int | None, int | None]:
    """The ranks, from 1, of the samples at both ends of the 95 % interval of a quantile.

    None where no sample is surely below it, or above it.
    """
    if samples == 0:
        return None, None
    mean, deviation = samples * portion, math.sqrt(samples * portion * (1 - portion))
    low = max(0, math.floor(mean - _SPAN_DEVIATIONS * deviation) - 1)
    high = min(samples, math.ceil(mean + _SPAN_DEVIATIONS * deviation) + 1)
    numbers = np.arange(low, high + 1)
    steps = np.log((samples - numbers[:-1]) / numbers[1:] * portion / (1 - portion))
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    chances = np.exp(logs - logs.max())
    chances /= chances.sum()
    at_most = np.cumsum(chances)
    at_least = np.cumsum(chances[::-1])[::-1]
    lower, upper = numbers[at_most <= _ERRS], numbers[at_least <= _ERRS]
    return (int(lower[-1]) + 1 if len(lower) else None), (int(upper[0]) if len(upper) else None)


# A hair above, so that rounding does not turn down what holds exactly.
_ERRS = ERROR_PER_END * (1 + 1e-9)
