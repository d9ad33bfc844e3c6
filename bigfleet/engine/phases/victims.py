"""Whose machine goes, and how long its pods may take to leave.

score = gap x w1 + w2 / seconds of grace + w3 / interruption penalty + w4 / reclamation penalty; the
highest is taken first. The gap is between the priorities of who takes and who loses. A penalty of
nothing counts as one cent. PINNED makes a term nothing at all.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.snapshot import Floats, Longs, VictimWeights
from bigfleet.model import penalty

# A larger gap than the first number gives the pods so many seconds; the last row is for all others.
GRACE_BANDS = ((900_000, 10), (500_000, 30), (100_000, 120), (-1, 600))

_LEAST_DOLLARS = 0.01
_DOLLARS = np.array(
    [
        max(penalty.dollars(max(bucket, penalty.ZERO)), _LEAST_DOLLARS)
        for bucket in range(penalty.PINNED + 1)
    ]
)


def grace_periods(gaps: Longs) -> Longs:
    """Seconds in which the pods of a victim must leave, for each gap >= 0."""
    seconds = np.empty(len(gaps), np.int64)
    for floor, of_band in reversed(GRACE_BANDS):
        seconds[gaps > floor] = of_band
    return seconds


def scores(gaps: Longs, interruption: Longs, reclamation: Longs, weights: VictimWeights) -> Floats:
    """How good a victim each machine is, from penalty buckets 0 (unknown, as $0) to PINNED."""
    result: Floats = gaps * weights.priority_gap + weights.drain / grace_periods(gaps)
    result += weights.interruption / _DOLLARS[interruption]
    return result + weights.reclamation / _DOLLARS[reclamation]
