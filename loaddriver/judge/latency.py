"""The waits of pods from creation to binding, and which of them are one draw."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from loaddriver.judge.confidence import arrivals
from loaddriver.judge.percentiles import Quantiles, quantiles
from loaddriver.record.rows import PodRow


def bind_latency(rows: Sequence[PodRow]) -> Quantiles:
    """Over all of them: those bound, and those that were never."""
    ended, unended = waits(rows)
    arrived = came_with(rows)
    return quantiles(ended, unended, arrived, waited_with(rows, arrived))


def waits(rows: Iterable[PodRow]) -> tuple[list[float], list[float]]:
    """Waits of bound pods, and of pods never bound."""
    ended: list[float] = []
    unended: list[float] = []
    for row in rows:
        (unended if row.bound_micros is None else ended).append(row.waited_seconds)
    return ended, unended


def came_with(rows: Sequence[PodRow]) -> list[Hashable]:
    """Of each bound pod, in the rows' order, the draw that it is a part of."""
    groups = arrivals([(row.object_key, row.created_micros) for row in rows])
    return [of for of, row in zip(groups, rows, strict=True) if row.bound_micros is not None]


def waited_with(rows: Sequence[PodRow], arrived: Sequence[Hashable]) -> list[Hashable]:
    """Of each bound pod, in the rows' order, the node that it waited for; of one that did not wait
    for any, the draw that it came with, of which `came_with` has `arrived`.
    """
    bound = (row for row in rows if row.bound_micros is not None)
    return [
        (row.cluster, row.node) if row.found_room is False else arrival
        for row, arrival in zip(bound, arrived, strict=True)
    ]
