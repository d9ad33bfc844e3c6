"""Hops of bands: the mean wait of typical and of slow pods, by hop.

The p99 of a hop is not the hop of the pods at the p99, which may be slow in one hop and fast in
others. A band consists of pods with similar waits, so its hops add up to its wait.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from loaddriver.judge.schema import Band
from loaddriver.record.hops import HOPS
from loaddriver.record.rows import PodRow

BANDS: Mapping[str, tuple[float, float]] = {
    "all": (0.0, 1.0),
    "middle": (0.4, 0.6),
    "slowest": (0.99, 1.0),
}
"""Shares of the bound pods, in order of their waits."""


def wait_bands(rows: Sequence[PodRow]) -> dict[str, Band]:
    """The mean wait of each band, by hop; empty if no pod was bound."""
    bound = sorted(
        (row for row in rows if row.bound_micros is not None), key=lambda row: row.waited_seconds
    )
    if not bound:
        return {}
    return {name: _band(_between(bound, low, high)) for name, (low, high) in BANDS.items()}


def _between(ordered: Sequence[PodRow], low: float, high: float) -> Sequence[PodRow]:
    """The pods of a band, at least one."""
    end = max(1, math.ceil(high * len(ordered)))
    return ordered[min(math.floor(low * len(ordered)), end - 1) : end]


def _band(rows: Sequence[PodRow]) -> Band:
    spent: Counter[str] = Counter()
    for row in rows:
        spent.update(row.hops_micros())
    return Band(
        pods=len(rows),
        wait_seconds=round(spent.total() / len(rows) / 1e6, 6),
        hops_seconds={hop: round(spent[hop] / len(rows) / 1e6, 6) for hop in HOPS if hop in spent},
    )
