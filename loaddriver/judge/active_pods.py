"""Pods that demand capacity and pods that run, over time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bigfleet.model import resources
from loaddriver.judge.facts import FleetFacts
from loaddriver.record.rows import PodRow
from loaddriver.sizing.fit import Offering, PodRequirements

Counts = NDArray[np.int64]

_ORDINARY = (resources.CPU, resources.MEMORY)
_NOISE = 0.01
_REPLACED_MICROS = 3 * 1_000_000


def completed_micros(row: PodRow, run_seconds: Mapping[str, float]) -> int | None:
    """When a Job's bound pod completes unless it is removed before; None for other pods.

    Logs lack the completion; the run time is known.
    """
    seconds = run_seconds.get(row.archetype)
    if seconds is None or row.bound_micros is None:
        return None
    return row.bound_micros + round(seconds * 1e6)


def ends_micros(row: PodRow, run_seconds: Mapping[str, float]) -> int | None:
    """When it stopped needing a node: it was removed or completed. None if neither."""
    ends = (row.deleted_micros, completed_micros(row, run_seconds))
    return min((at for at in ends if at is not None), default=None)


def active_pods(rows: Iterable[PodRow], at_micros: int, fleet: FleetFacts) -> Iterator[PodRow]:
    """The pods that demanded a node at that time, bound or not."""
    for row in rows:
        ended = ends_micros(row, fleet.run_seconds)
        if row.created_micros <= at_micros and (ended is None or ended > at_micros):
            yield row


def pods_by_cluster(
    rows: Iterable[PodRow], at_micros: int, fleet: FleetFacts
) -> dict[str, Counter[PodRequirements]]:
    """The requirements of those pods, by cluster."""
    found: dict[str, Counter[PodRequirements]] = {}
    for row in active_pods(rows, at_micros, fleet):
        needs = fleet.needs.get((row.cluster, row.workload))
        if needs is not None:
            found.setdefault(row.cluster, Counter())[needs] += 1
    return found


class DemandCurve:
    """The total requests of each cluster's pods over time."""

    def __init__(self, rows: Iterable[PodRow], fleet: FleetFacts) -> None:
        self._names = sorted({name for needs in fleet.needs.values() for name, _ in needs.requests})
        changes: defaultdict[str, list[tuple[int, int, PodRequirements]]] = defaultdict(list)
        for row in rows:
            needs = fleet.needs.get((row.cluster, row.workload))
            if needs is None:
                continue
            changes[row.cluster].append((row.created_micros, 1, needs))
            ended = ends_micros(row, fleet.run_seconds)
            if ended is not None:
                changes[row.cluster].append((max(ended, row.created_micros), -1, needs))
        self._changes = dict(changes)
        self._kinds = {name: {each for *_, each in own} for name, own in changes.items()}
        self._curves = {name: self._curve(own) for name, own in changes.items()}
        self._parts: dict[tuple[str, frozenset[PodRequirements]], tuple[Counts, Counts]] = {}

    def decrease(
        self, cluster: str, begin_micros: int, end_micros: int, machine: Offering
    ) -> dict[str, int]:
        """The decrease from their peak in a period to its end of what a cluster's pods that might
        run on the machine request, by resource name; "" stands for all clusters.
        """
        total = np.zeros(len(self._names), dtype=np.int64)
        for name in self._curves if cluster == "" else (cluster,):
            times, levels = self._part(name, machine)
            first = max(0, int(np.searchsorted(times, begin_micros, side="right")) - 1)
            last = int(np.searchsorted(times, end_micros, side="right"))
            if last > first:
                total += levels[first:last].max(axis=0) - levels[last - 1]
        return dict(zip(self._names, total.tolist(), strict=True))

    def _part(self, cluster: str, machine: Offering) -> tuple[Counts, Counts]:
        """The curve of the pods that the machine serves, of whatever size."""
        kinds = self._kinds.get(cluster, ())
        served = frozenset(each for each in kinds if each.is_served_by(machine))
        key = cluster, served
        if key not in self._parts:
            its = [each for each in self._changes.get(cluster, ()) if each[2] in served]
            self._parts[key] = self._curve(its)
        return self._parts[key]

    def is_highest(self, cluster: str, at_micros: int) -> bool:
        """Whether a cluster has requested about as much CPU and memory as ever before within the
        last seconds: when pods are evicted, it takes a moment until they are replaced.
        """
        if cluster not in self._curves:
            return False
        times, levels = self._curves[cluster]
        first, until = np.searchsorted(times, (at_micros - _REPLACED_MICROS, at_micros))
        own = levels[:until, [name in _ORDINARY for name in self._names]]
        if not until:
            return False
        lately = own[max(0, first - 1) :].max(axis=0)
        return bool((lately >= own.max(axis=0) * (1 - _NOISE)).all())

    def _curve(self, changes: list[tuple[int, int, PodRequirements]]) -> tuple[Counts, Counts]:
        """Times in order, and the requests from each of them on."""
        changes.sort(key=lambda change: change[0])
        amounts = [(sign, dict(needs.requests)) for _, sign, needs in changes]
        steps = [[sign * own.get(name, 0) for name in self._names] for sign, own in amounts]
        times = np.array([at_micros for at_micros, _, _ in changes], dtype=np.int64)
        amounts_by_time = np.array(steps, dtype=np.int64).reshape(len(steps), len(self._names))
        return times, np.cumsum(amounts_by_time, axis=0)


def mean_running(
    rows: Sequence[PodRow], begin_micros: int, end_micros: int, fleet: FleetFacts
) -> float:
    """The mean number of pods with a node in a period."""
    if end_micros <= begin_micros:
        return 0.0
    total = 0
    for row in rows:
        if row.bound_micros is not None:
            ended = ends_micros(row, fleet.run_seconds)
            until = end_micros if ended is None else min(ended, end_micros)
            total += max(0, until - max(row.bound_micros, begin_micros))
    return total / (end_micros - begin_micros)
