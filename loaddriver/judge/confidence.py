"""Distribution-free confidence intervals of quantiles by order statistics.

Of n independent samples, the number that lie below the quantile p is binomial (n, p), whatever the
distribution is. So the sample of rank l lies below the quantile with the probability that at least
l of n do, and the sample of rank u above it with the probability that fewer than u do. Ranks are
chosen so that each end errs with at most 2.5 %: together a 95 % interval. If even the largest of n
samples is not above the quantile with that confidence (p ** n > 2.5 %), n samples are too few.

Pods are not independent samples. Those of one object (a Deployment, a Job, a gang) are due
together and wait for one machine. So an object counts as one sample, however many pods it has, and
objects of unequal size as fewer samples than their number. Pods that an object creates later, by
churn or scaling, are a sample of their own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache

import numpy as np

ERROR_PER_END = 0.025
# Pods of an object that are due later, by churn or scaling, are a batch of their own.
BATCH_GAP_SECONDS = 5.0
_SPAN_DEVIATIONS = 10


def effective_sample_size(objects: Iterable[Hashable]) -> int:
    """The effective sample size (Kish) of the pods of these objects.

    The square of the sum over the sum of squares of the object sizes, since the pods of an object
    count as copies of each other: n objects of equal size are n samples.
    """
    sizes = Counter(objects).values()
    return sum(sizes) ** 2 // sum(size * size for size in sizes) if sizes else 0


def arrival_batches(pods: Sequence[tuple[Hashable, int]]) -> list[tuple[Hashable, int]]:
    """The arrival batch of each pod, given by its object and when it was due, in microseconds.

    Pods of one object that follow each other within `BATCH_GAP_SECONDS` are one batch.
    """
    batches: list[tuple[Hashable, int]] = [("", 0)] * len(pods)
    latest: dict[Hashable, int] = {}
    number: Counter[Hashable] = Counter()
    for position in sorted(range(len(pods)), key=lambda each: pods[each][1]):
        of, created_micros = pods[position]
        if created_micros - latest.get(of, created_micros) > BATCH_GAP_SECONDS * 1e6:
            number[of] += 1
        latest[of] = created_micros
        batches[position] = of, number[of]
    return batches


def required_sample_size(level: float) -> int:
    """The smallest sample size with a closed interval: 368 for p99, 36 for p90."""
    return math.ceil(math.log(ERROR_PER_END) / math.log(level))


@lru_cache(maxsize=4096)
def bracket(samples: int, level: float) -> tuple[int | None, int | None]:
    """The ranks, from 1, of the samples at both ends of a quantile's 95 % interval.

    None for an open end.
    """
    if samples == 0:
        return None, None
    mean, deviation = samples * level, math.sqrt(samples * level * (1 - level))
    low = max(0, math.floor(mean - _SPAN_DEVIATIONS * deviation) - 1)
    high = min(samples, math.ceil(mean + _SPAN_DEVIATIONS * deviation) + 1)
    numbers = np.arange(low, high + 1)
    steps = np.log((samples - numbers[:-1]) / numbers[1:] * level / (1 - level))
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    probabilities = np.exp(logs - logs.max())
    probabilities /= probabilities.sum()
    at_most = np.cumsum(probabilities)
    at_least = np.cumsum(probabilities[::-1])[::-1]
    lower, upper = (
        numbers[at_most <= _MAX_TAIL_PROBABILITY],
        numbers[at_least <= _MAX_TAIL_PROBABILITY],
    )
    return (int(lower[-1]) + 1 if len(lower) else None), (int(upper[0]) if len(upper) else None)


# Slightly above, so that rounding does not reject exact equality.
_MAX_TAIL_PROBABILITY = ERROR_PER_END * (1 + 1e-9)
