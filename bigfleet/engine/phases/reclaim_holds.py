"""How long surplus machines are held before they are reclaimed.

As many machines may go as have been surplus for the reclaim hold: which machine is surplus changes
from one count to the next, how many are does not.

Reclaiming on the simulated count alone flaps: kube-scheduler packs worse than the simulation, and
machines would have to be acquired again. So if a need acquires machines soon after a reclaim
although its cluster's demand has hardly grown, as many surplus machines as it acquired, of those
that it can use, are held twice as long, and again twice as long when that was not enough (backoff,
at most 32x). The cluster's other machines go as before: one pod that found no place says nothing
about the machines of other pods, and a hundred surplus machines are no less surplus for it.

For the same reason a machine with pods goes that soon only while the cluster has more capacity for
its demand than when it last grew: that much kube-scheduler needed. Beyond it, machines must have
been surplus for as long as an acquisition counts as too early.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bigfleet.engine.columns import PODS_COLUMN
from bigfleet.engine.cycle_memory import ClusterMemory, Reacquired
from bigfleet.engine.fit.pod_classes import NeedType
from bigfleet.engine.snapshot import NONE, Flags, Floats, Longs, Rows
from bigfleet.engine.state.cycle_state import CycleState

_MAX_HOLD_FACTOR = 32
# To look for surplus machines packs all pods of a cluster up to 24 times.
_SEARCHES_PER_HOLD = 6
# Shares are counted in steps, so that a sum does not depend on its order.
_MILLION = 1_000_000


class _Kept(NamedTuple):
    """Of the `usable` surplus machines [n], `machines` are held until more than `held` go."""

    usable: Flags
    machines: int
    held: int


class ReclaimHolds:
    """The holds of one decision."""

    def __init__(self, state: CycleState) -> None:
        self._state = state
        #: by cluster, before this decision acquires anything
        self._demand = _demand_of_clusters(state)

    def grows(self, cluster: int) -> bool:
        """Whether the cluster's demand as a whole has grown within the reclaim hold."""
        return self._state.last_decision.cluster(cluster).grows(float(self._demand[cluster]))

    def growing(self) -> frozenset[int]:
        """The clusters whose demand as a whole grows, and has not fallen since."""
        demand = enumerate(self._demand.tolist())
        return frozenset(
            c for c, amount in demand if self._state.last_decision.cluster(c).is_growing(amount)
        )

    def is_search_due(self, cluster: int) -> bool:
        """Whether to look for the cluster's surplus machines in this decision."""
        settings, memory = self._state.settings, self._state.last_decision.cluster(cluster)
        hold_seconds = settings.reclaim_hold_seconds
        holds = hold_seconds, settings.reacquire_seconds
        interval_seconds = hold_seconds / _SEARCHES_PER_HOLD
        return memory.is_search_due(interval_seconds, holds, self._state.now_seconds)

    def due(self, cluster: int, rows: Rows, most: int) -> Rows:
        """The machines among the surplus ones `rows` whose hold is over, at most `most`."""
        state, memory = self._state, self._state.last_decision.cluster(cluster)
        most = min(most, self._held(cluster, 1, len(rows)))
        if not most:
            return rows[:0]
        kept = [*self._kept(cluster, rows)]
        left = [int(each.usable.sum()) for each in kept]
        spare = memory.spare(self._capacity_of_cluster(cluster), float(self._demand[cluster]))
        long_held = self._held_for(cluster, state.settings.reacquire_seconds, len(rows))
        capacity, cost = self._capacity_of(rows).tolist(), state.fleet.disruption_cost[rows]
        due: list[int] = []
        for at, disrupts in enumerate((cost != 0).tolist()):
            its = [number for number, each in enumerate(kept) if each.usable[at]]
            stays = any(left[n] <= kept[n].machines and len(due) >= kept[n].held for n in its)
            # The count may find places for its pods that kube-scheduler has filled otherwise.
            stays |= disrupts and spare <= 0 and len(due) >= long_held
            if len(due) < most and not stays:
                due.append(at)
                spare -= capacity[at]
                for number in its:
                    left[number] -= 1
        return rows[due]

    def memory(
        self, surplus: Mapping[int, int], answered: Container[int], reclaimed: Mapping[int, int]
    ) -> Iterator[ClusterMemory]:
        """The memory of all clusters for the next decision, by their numbers of surplus machines,
        where these were looked for, and of those that are reclaimed now. Where operators have
        `answered`, surplus machines may be known from before.
        """
        state, now = self._state, self._state.now_seconds
        names, acquired = state.fleet.clusters, self._acquired()
        for cluster, name in sorted(enumerate(names), key=lambda pair: pair[1]):
            before, gone = state.last_decision.cluster(cluster), reclaimed.get(cluster, 0)
            memory = self._with_surplus(before, surplus.get(cluster), cluster in answered, gone)
            its, demand = acquired.get(cluster, Counter()), float(self._demand[cluster])
            reacquired = tuple(self._reacquired(before, its, demand))
            if reacquired != memory.reacquired:
                memory = replace(memory, reacquired=reacquired)
            if hold_seconds := state.settings.reclaim_hold_seconds:
                memory = memory.with_demand(demand, hold_seconds / 3, now)
            if its:
                memory = replace(memory, acquired_seconds=now)
                memory = memory.with_capacity(
                    self._capacity_of_cluster(cluster),
                    self._additional_capacity(cluster),
                    demand,
                    grows=not before.surplus,
                )
                if not before.surplus:
                    memory = replace(memory, grown_seconds=now)
            if gone:
                memory = replace(memory, reclaimed_seconds=now, reclaimed_demand=demand)
            # Clusters without history need no record.
            if memory != ClusterMemory(name):
                yield memory

    def _with_surplus(
        self, memory: ClusterMemory, found: int | None, answered: bool, reclaimed: int
    ) -> ClusterMemory:
        """A copy of a cluster's memory after so many surplus machines were found, None if they were
        not looked for.
        """
        if found is not None:
            return memory.with_surplus(found - reclaimed, reclaimed, self._state.now_seconds)
        if answered:
            return memory.without_search(reclaimed)
        if not memory.surplus and memory.searched_seconds is None:
            return memory
        return replace(memory, surplus=(), searched_seconds=None)

    def _held(self, cluster: int, factor: int, surplus: int) -> int:
        """How many machines have been surplus for `factor` holds; all `surplus` without a hold."""
        return self._held_for(cluster, self._state.settings.reclaim_hold_seconds * factor, surplus)

    def _held_for(self, cluster: int, seconds: float, surplus: int) -> int:
        if not self._state.settings.reclaim_hold_seconds:
            return surplus
        return self._state.last_decision.cluster(cluster).held(seconds, self._state.now_seconds)

    def _kept(self, cluster: int, rows: Rows) -> Iterator[_Kept]:
        for each in self._state.last_decision.cluster(cluster).reacquired:
            usable = self._usable(cluster, each.fingerprint, rows)
            held = self._held(cluster, each.hold_factor, len(rows))
            yield _Kept(usable, each.machines, held)

    def _usable(self, cluster: int, fingerprint: str, rows: Rows) -> Flags:
        """Which machines a pod of such a need can run on, were they empty: all that it may buy."""
        state, classes = self._state, self._state.classes
        flavour = state.fleet.flavour[rows]
        room = state.capacities.of(cluster)[flavour]
        usable: Flags = np.zeros(len(rows), np.bool_)
        for index in np.flatnonzero(state.demand.cluster == cluster).tolist():
            if state.demand.needs[index].key[0] != fingerprint:
                continue
            its, suits = classes.of(index), state.flavour_fit(index).accepted[flavour]
            for size in classes.sizes[its][~classes.impossible[its]]:
                usable |= suits & (room >= size).all(axis=1)
        return usable

    def _acquired(self) -> dict[int, Counter[str]]:
        """How many machines this decision acquires, by cluster and fingerprint."""
        state, found = self._state, dict[int, Counter[str]]()
        for index, rows in state.acquired.items():
            if rows:
                its = found.setdefault(state.cluster_of(index), Counter())
                its[state.demand.needs[index].key[0]] += len(rows)
        return found

    def _additional_capacity(self, cluster: int) -> int:
        """The capacity that this decision acquires for additional needs of the cluster."""
        state, needs = self._state, self._state.needs
        rows = [
            row
            for index, its in state.acquired.items()
            if needs.additional[index] and state.cluster_of(index) == cluster
            for row in its
        ]
        return int(self._capacity_of(np.array(rows, np.intp)).sum())

    def _capacity_of(self, rows: Rows) -> Longs:
        """The capacity of each machine in CPU or memory, whichever is more, as a share of the
        fleet's largest in millionths.
        """
        return self._capacity_of_flavour[self._state.fleet.flavour[rows]]

    def _capacity_of_cluster(self, cluster: int) -> int:
        """The capacity of its machines, those on their way included, in the same unit."""
        rows = self._state.packings[cluster].rows
        return int(self._capacity_of(rows[rows != NONE]).sum())

    @cached_property
    def _capacity_of_flavour(self) -> Longs:
        """[F] int64"""
        state = self._state
        # All machines, large and small, may have room for as many pods.
        allocatable = state.columns.allocatable[:, :PODS_COLUMN]
        shares = (allocatable / state.classes.largest[:PODS_COLUMN]).max(axis=1, initial=0.0)
        millionths: Longs = np.rint(shares * _MILLION).astype(np.int64)
        return millionths

    def _reacquired(
        self, memory: ClusterMemory, acquired: Mapping[str, int], demand: float
    ) -> Iterator[Reacquired]:
        state, now = self._state, self._state.now_seconds
        reclaimed = memory.reclaimed_seconds
        soon = reclaimed is not None and now - reclaimed < state.settings.reacquire_seconds
        has_grown = demand > memory.reclaimed_demand * (1 + state.settings.reclaim_margin)
        again = acquired if soon and not has_grown else {}
        known = {each.fingerprint: each for each in memory.reacquired}
        for fingerprint in sorted({*known, *again}):
            each = known.get(fingerprint, Reacquired(fingerprint, 0, 1, -np.inf))
            if fingerprint in again:
                machines, factor = each.machines + again[fingerprint], each.hold_factor
                if reclaimed is not None and each.since_seconds < reclaimed:
                    # Whatever was reclaimed since the hold last became longer went too early.
                    factor = min(_MAX_HOLD_FACTOR, factor * 2)
                    each = replace(each, hold_factor=factor, since_seconds=now)
                yield replace(each, machines=machines)
            elif now - each.since_seconds <= state.settings.reacquire_seconds * each.hold_factor:
                yield each
            elif each.hold_factor > 2:
                # No flapping for long enough: back off less.
                yield replace(each, hold_factor=each.hold_factor // 2, since_seconds=now)


def _demand_of_clusters(state: CycleState) -> Floats:
    """By cluster, the total dominant share of its pods, in largest machines; impossible pods and
    additional needs left out.
    """
    classes = state.classes
    left_out = classes.impossible | (classes.need_type[classes.need] == NeedType.ADDITIONAL)
    shares = np.where(left_out, 0.0, classes.count * classes.dominant_share)
    cluster = state.demand.cluster[classes.need]
    total: Floats = np.bincount(cluster, shares, len(state.fleet.clusters)).astype(np.float64)
    return total
