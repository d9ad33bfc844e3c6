"""Which of n ordered samples bracket a quantile: the binomial argument, free of any distribution.

Of n independent samples, the number that lie below the quantile p is binomial (n, p), whatever the
samples are. So the sample of rank l lies below the quantile with the probability that at least l of
n do, and the sample of rank u above it with the probability that fewer than u do. Ranks are chosen
so that each end errs in at most 2.5 % of cases: together an interval of 95 %. If even the largest
of n samples is not surely above the quantile (p ** n > 2.5 %), n samples do not know it.

Pods are not such samples. Those of one object (a Deployment, a Job, a gang) come together and wait
for one machine: another run would draw another object, with all of its pods. So an object counts
as one draw, however many pods it has, and objects of unequal size as fewer draws than they are.
Pods of an object that come later, because one was churned or it was scaled, are a draw of their
own: nothing that the first ones waited for is left for them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache

import numpy as np

ERROR_PER_END = 0.025
# A controller creates an object's pods one after the other; a busy API server makes it pause.
BATCH_GAP_SECONDS = 5.0
_SPAN_DEVIATIONS = 10


def effective_sample_size(objects: Iterable[Hashable]) -> int:
    """How many independent samples the pods are worth that belong to these objects.

    The square of the sum over the sum of squares (Kish's effective size, with pods of an object
    taken as copies of each other): n objects of any one size are n draws, n pods that are an
    object each are n draws.
    """
    sizes = Counter(objects).values()
    return sum(sizes) ** 2 // sum(size * size for size in sizes) if sizes else 0


def arrival_batches(pods: Sequence[tuple[Hashable, int]]) -> list[tuple[Hashable, int]]:
    """For each pod, given by its object and its creation in microseconds, whom it came with.

    Pods of one object that follow each other by no more than `BATCH_GAP_SECONDS` came together.
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
    """The fewest samples whose largest is surely above the quantile: 368 for p99, 36 for p90."""
    return math.ceil(math.log(ERROR_PER_END) / math.log(level))


@lru_cache(maxsize=4096)
def bracket(samples: int, level: float) -> tuple[int | None, int | None]:
    """The ranks, from 1, of the samples at both ends of the 95 % interval of a quantile.

    None where no sample is surely below it, or above it.
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


# A hair above, so that rounding does not turn down what holds exactly.
_MAX_TAIL_PROBABILITY = ERROR_PER_END * (1 + 1e-9)
