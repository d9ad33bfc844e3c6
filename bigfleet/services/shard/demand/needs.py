"""The needs of all clusters: each roll-up replaces its cluster's previous one."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bigfleet.api.limit_codec import NodeLimit, limits_from_wire
from bigfleet.api.overhead_codec import overheads_from_wire
from bigfleet.api.v1alpha1 import capacity_pb2 as wire
from bigfleet.engine.snapshot import Demand, Ints
from bigfleet.model.ceiling import Ceiling, Ceilings
from bigfleet.model.errors import InvalidInput
from bigfleet.model.group import Additional
from bigfleet.model.need import Need, NeedKey, NodeOverhead
from bigfleet.observe import metrics
from bigfleet.services.shard.demand.demand_limit import beyond_limit
from bigfleet.services.shard.demand.node_limits import NodeLimits
from bigfleet.services.shard.demand.ordered_rows import OrderedRows
from bigfleet.services.shard.demand.rollup_guard import RollUpGuard
from bigfleet.services.shard.demand.rollup_rows import (
    Difference,
    Key,
    NeedRow,
    Trends,
    encoded,
    pods_of,
    read,
)
from bigfleet.services.shard.records.interning import Numbers

_LOG = logging.getLogger(__name__)


class RollUpOutcome(NamedTuple):
    """Result of a roll-up: why it is `held`, if so, by index the error of each rejected need and
    node overhead, and the indices of the needs left out because the cluster requests too much.
    """

    held: str
    needs: Mapping[int, str] = {}
    overheads: Mapping[int, str] = {}
    left_out: Collection[int] = ()


class NeedsTable:
    """Needs by cluster, profile and group, in the order in which they are served.

    A need keeps its arrival time across roll-ups. `numbers` is shared with the inventory.
    `limits` are the node limits. Needs above their cluster's priority ceiling are served at the
    ceiling. `version` changes with every change.
    """

    def __init__(self, numbers: Numbers, guard: RollUpGuard | None = None) -> None:
        self._clusters, self._keys = numbers.clusters, numbers.needs
        self._renumbered = self._keys.renumbered
        numbers.needs_in_force.append(self._numbers)
        self._guard = guard or RollUpGuard()
        self._rows: dict[str, dict[Key, NeedRow]] = {}
        self._by_wire_bytes: dict[str, dict[bytes, NeedRow]] = {}
        self._pods: dict[str, int] = {}
        self._ordered = OrderedRows()
        self._reported: set[int] = set()
        self._left_out: dict[str, int] = {}
        self._overheads: dict[str, tuple[NodeOverhead, ...]] = {}
        self._trends = Trends()
        self._demand: Demand | None = None
        self._ceilings = Ceilings()
        self.limits = NodeLimits()
        self.version = 0

    def cluster_name(self, number: int) -> str:
        """The name of the cluster with this number in a Demand."""
        return self._clusters[number]

    def __len__(self) -> int:
        return sum(len(rows) for rows in self._rows.values())

    def replace(self, rollup: wire.ClusterCapacityNeeds, now_seconds: float) -> RollUpOutcome:
        """Apply the valid part of a roll-up.

        An invalid need keeps its last valid version. InvalidInput when all of its needs are
        invalid; then nothing is applied. Needs beyond the cluster's limit are left out, and its
        machines kept. Of a held roll-up only additions are applied.
        """
        cluster = rollup.cluster_id
        overheads, odd = overheads_from_wire(rollup.node_overheads, f"cluster {cluster}")
        limits, problems = limits_from_wire(rollup.node_limits, f"cluster {cluster}")
        _warn_of_rejected_limits(problems)
        rows = self._rows.get(cluster, {})
        known, needs = self._by_wire_bytes.get(cluster, {}), encoded(rollup)
        beyond = beyond_limit(rollup.needs, needs, rows, known)
        admitted = {n: raw for n, raw in enumerate(needs) if n not in beyond}
        difference, faults = read(rollup, admitted, rows, known)
        self._note_left_out(cluster, len(beyond))

        def accept(at_seconds: float) -> None:
            self._report(cluster)
            self._take_over(cluster, difference, at_seconds)
            self._note_overheads(cluster, overheads)
            self._note_limits(cluster, limits, at_seconds)

        before = (row.need for row in difference.gone(rows))
        after = (need for _, need in difference.changed.values())
        pods = self._pods_after(cluster, before, after)
        held = self._guard.holds(cluster, pods, now_seconds, accept)
        if held:
            self._take_over(cluster, difference.additions(rows), now_seconds)
            self._note_overheads(cluster, overheads or self._overheads.get(cluster, ()))
        return RollUpOutcome(held, faults, odd, beyond)

    def release_held(self, now_seconds: float) -> list[str]:
        """Apply held roll-ups whose hold has expired; return their clusters."""
        return self._guard.release(now_seconds)

    def forget_held(self, cluster: str) -> None:
        """Drop the held roll-up of a cluster whose operator has disconnected."""
        self._guard.drop(cluster)

    def save(self) -> None:
        """Save what the guard needs after a restart."""
        self._guard.save()

    @property
    def left_out(self) -> Mapping[str, int]:
        """Of each cluster that requests too much, the number of needs left out."""
        return self._left_out

    def count_of(self, cluster: str) -> int:
        """Number of the cluster's needs in force."""
        return len(self._rows.get(cluster, ()))

    def forget(self, cluster: str) -> None:
        """Drop all state of a removed cluster."""
        self._guard.forget(cluster)
        for row in self._rows.pop(cluster, {}).values():
            self._ordered.drop(row)
        self._by_wire_bytes.pop(cluster, None)
        self._pods.pop(cluster, None)
        self._left_out.pop(cluster, None)
        self._overheads.pop(cluster, None)
        self.limits.forget(cluster)
        number = self._clusters.number(cluster)
        self._reported.discard(number)
        self._trends.forget(number)
        self._changed()

    def demand(self) -> Demand:
        """All needs, sorted by descending priority, arrival, cluster, additional ones last, key."""
        if self._renumbered != self._keys.renumbered:
            self._number_again()
        if self._demand is None:
            needs, cluster, number = self._ordered.columns()
            self._demand = Demand(
                needs=needs,
                cluster=cluster,
                number=number,
                reported=frozenset(self._reported - self._exceeding()),
                overheads={
                    self._clusters.number(cluster): overheads
                    for cluster, overheads in self._overheads.items()
                },
                rose_seconds=dict(self._trends.rose_seconds),
                fell_seconds=dict(self._trends.fell_seconds),
                ceilings=self._ceilings_in_force(),
            )
        return self._demand

    def bound(self, ceilings: Ceilings) -> None:
        """Apply these ceilings."""
        if ceilings == self._ceilings:
            return
        self._ceilings = ceilings
        for cluster, rows in self._rows.items():
            for row in rows.values():
                row.need = self._bounded(cluster, row.need)
                row.order = (-row.need.priority, *row.order[1:])
        self._ordered.rearrange()
        self._changed()

    def _ceilings_in_force(self) -> Mapping[int, Ceiling]:
        """The ceilings of clusters that have sent a roll-up."""
        known = self._reported | {self._clusters.number(cluster) for cluster in self._rows}
        every = {number: self._ceilings.of(self._clusters[number]) for number in known}
        return {number: ceiling for number, ceiling in every.items() if ceiling != Ceiling()}

    def _bounded(self, cluster: str, need: Need) -> Need:
        most = self._ceilings.of(cluster).priority
        return need if need.priority_ceiling == most else replace(need, priority_ceiling=most)

    def _report(self, cluster: str) -> None:
        number = self._clusters.number(cluster)
        if number not in self._reported:
            self._reported.add(number)
            self._changed()

    def _pods_after(self, cluster: str, before: Iterable[Need], after: Iterable[Need]) -> int:
        """How many pods the cluster requests with needs `after` in place of those `before`."""
        return self._pods.get(cluster, 0) - pods_of(before) + pods_of(after)

    def _take_over(self, cluster: str, difference: Difference, now_seconds: float) -> None:
        rows = self._rows.setdefault(cluster, {})
        known = self._by_wire_bytes.setdefault(cluster, {})
        gone, changed = difference.gone(rows), difference.changed
        if not gone and not changed:
            return
        before = {row.key: row.need for row in gone}
        after = {key: need for key, (_, need) in changed.items()}
        self._pods[cluster] = self._pods_after(cluster, before.values(), after.values())
        self._trends.note(self._clusters.number(cluster), before, after, now_seconds)
        for row in gone:
            del known[row.wire_bytes]
            if row.key not in changed:
                self._ordered.drop(rows.pop(row.key))
        for key, (wire_bytes, need) in changed.items():
            bounded = self._bounded(cluster, need)
            if (known_row := rows.get(key)) is None:
                known_row = rows[key] = self._new_row(cluster, bounded, wire_bytes, now_seconds)
            else:
                known_row.need, known_row.wire_bytes = bounded, wire_bytes
                self._ordered.alter(known_row)
            known[wire_bytes] = known_row
        self._changed()

    def _note_left_out(self, cluster: str, needs: int) -> None:
        if (cluster in self._left_out) != bool(needs):
            self._changed()
        self._left_out.pop(cluster, None)
        if needs:
            self._left_out[cluster] = needs

    def _exceeding(self) -> set[int]:
        """Clusters with needs left out: it is unknown which machines these use, so none is
        reclaimed.
        """
        return {self._clusters.number(cluster) for cluster in self._left_out}

    def _note_overheads(self, cluster: str, overheads: tuple[NodeOverhead, ...]) -> None:
        if self._overheads.get(cluster, ()) != overheads:
            self._overheads[cluster] = overheads
            self._changed()

    def _note_limits(
        self, cluster: str, limits: Mapping[str, NodeLimit], now_seconds: float
    ) -> None:
        if self.limits.replace(cluster, limits, now_seconds):
            self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._demand = None

    def _new_row(self, cluster: str, need: Need, wire_bytes: bytes, now_seconds: float) -> NeedRow:
        # Additional needs are served after the other needs of their cluster.
        is_additional = isinstance(need.group, Additional)
        order = (-need.priority, now_seconds, cluster, is_additional, need.key)
        number = self._keys.number(NeedKey(cluster, *need.key))
        row = NeedRow(need, wire_bytes, self._clusters.number(cluster), number, order)
        self._ordered.add(row)
        return row

    def _numbers(self) -> Ints:
        rows = (row.number for rows in self._rows.values() for row in rows.values())
        return np.fromiter(rows, np.int32)

    def _number_again(self) -> None:
        self._renumbered, self._demand = self._keys.renumbered, None
        for rows in self._rows.values():
            for row in rows.values():
                row.number = self._keys.number(NeedKey(row.cluster, *row.key))
        self._ordered.rearrange()


def _warn_of_rejected_limits(problems: Sequence[InvalidInput]) -> None:
    if problems:
        metrics.shard_node_limits_rejected.inc(len(problems))
        _LOG.warning(
            "node limits rejected", extra={"number": len(problems), "why": str(problems[0])}
        )
