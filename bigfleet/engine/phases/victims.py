"""Eviction scores of machines, and the grace periods of their pods.

score = gap x w1 + w2 / seconds of grace + w3 / interruption penalty + w4 / reclamation penalty; the
machine with the highest score is preempted first. The gap is the difference between the priorities
of preemptor and victim. A penalty of $0 counts as one cent. For PINNED the term is 0.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.snapshot import Bytes, Floats, Longs, VictimWeights
from bigfleet.model import penalty

# (gap, seconds): a larger gap gives the pods this grace period.
GRACE_BANDS = ((900_000, 10), (500_000, 30), (100_000, 120), (-1, 600))

_LEAST_DOLLARS = 0.01
_DOLLARS = np.array(
    [
        max(penalty.dollars(max(bucket, penalty.ZERO)), _LEAST_DOLLARS)
        for bucket in range(penalty.PINNED + 1)
    ]
)


def grace_periods(gaps: Longs) -> Longs:
    """The grace period in seconds for each gap >= 0."""
    seconds = np.empty(len(gaps), np.int64)
    for floor, of_band in reversed(GRACE_BANDS):
        seconds[gaps > floor] = of_band
    return seconds


def scores(gaps: Longs, interruption: Bytes, reclamation: Bytes, weights: VictimWeights) -> Floats:
    """The eviction score of each machine, from penalty buckets 0 (unknown, as $0) to PINNED."""
    result: Floats = gaps * weights.priority_gap + weights.drain / grace_periods(gaps)
    result += weights.interruption / _DOLLARS[interruption]
    return result + weights.reclamation / _DOLLARS[reclamation]
