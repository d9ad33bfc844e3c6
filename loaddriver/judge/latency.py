"""The waits of pods from creation to binding, and their grouping into samples."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from loaddriver.judge.confidence import arrival_batches
from loaddriver.judge.percentiles import Quantiles, quantiles
from loaddriver.record.rows import PodRow


def bind_latency(rows: Sequence[PodRow]) -> Quantiles:
    """Quantiles over all pods, bound or not."""
    ended, censored = observed_and_censored(rows)
    batches = bound_batches(rows)
    return quantiles(ended, censored, batches, bound_wait_groups(rows, batches))


def observed_and_censored(rows: Iterable[PodRow]) -> tuple[list[float], list[float]]:
    """Waits of bound pods, and censored waits of pods never bound."""
    ended: list[float] = []
    censored: list[float] = []
    for row in rows:
        (censored if row.bound_micros is None else ended).append(row.waited_seconds)
    return ended, censored


def bound_batches(rows: Sequence[PodRow]) -> list[Hashable]:
    """The arrival batch of each bound pod, in the rows' order."""
    groups = arrival_batches([(row.object_key, row.created_micros) for row in rows])
    return [of for of, row in zip(groups, rows, strict=True) if row.bound_micros is not None]


def bound_wait_groups(rows: Sequence[PodRow], batches: Sequence[Hashable]) -> list[Hashable]:
    """The node that each bound pod waited for, in the rows' order; if none, its arrival batch, from
    the `batches` of `bound_batches`.
    """
    bound = (row for row in rows if row.bound_micros is not None)
    return [
        (row.cluster, row.node) if row.node_was_ready is False else arrival
        for row, arrival in zip(bound, batches, strict=True)
    ]
