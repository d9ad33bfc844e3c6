"""The waits of pods until they are bound, and their grouping into samples."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from loaddriver.judge.confidence import arrival_batches
from loaddriver.judge.percentiles import Quantiles, quantiles
from loaddriver.record.due import MissingPod
from loaddriver.record.rows import PodRow


def due_to_bind(rows: Sequence[PodRow], missing: Sequence[MissingPod] = ()) -> Quantiles:
    """Quantiles from due time to binding over all pods, bound or not, created or not."""
    ended, censored = observed_and_censored(rows, missing)
    batches = bound_batches(rows)
    return quantiles(ended, censored, batches, bound_wait_groups(rows, batches))


def create_to_bind(rows: Sequence[PodRow]) -> Quantiles:
    """Quantiles from creation to binding over all created pods, bound or not."""
    ended: list[float] = []
    censored: list[float] = []
    for row in rows:
        waits = censored if row.bound_micros is None else ended
        waits.append(row.waited_since_creation_seconds)
    batches = bound_batches(rows)
    return quantiles(ended, censored, batches, bound_wait_groups(rows, batches))


def observed_and_censored(
    rows: Iterable[PodRow], missing: Iterable[MissingPod] = ()
) -> tuple[list[float], list[float]]:
    """Waits of bound pods, and censored waits of pods never bound or never created."""
    ended: list[float] = []
    censored = [each.waited_seconds for each in missing]
    for row in rows:
        (censored if row.bound_micros is None else ended).append(row.waited_seconds)
    return ended, censored


def bound_batches(rows: Sequence[PodRow]) -> list[Hashable]:
    """The arrival batch of each bound pod, in the rows' order."""
    groups = arrival_batches([(row.object_key, row.wait_began_micros) for row in rows])
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
