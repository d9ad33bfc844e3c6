"""What a decision takes over from the last one: reservations, machines that have just arrived, how
many pods run, and the history of clusters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from bigfleet.engine.cycle_memory import ClusterMemory, CycleMemory, Reservation
from bigfleet.engine.fit.pod_classes import PodClasses
from bigfleet.engine.kernels.term_domains import count_accepting
from bigfleet.engine.need_columns import NeedColumns
from bigfleet.engine.snapshot import (
    NONE,
    Demand,
    EngineConfig,
    Flags,
    Fleet,
    Ints,
    Longs,
    Rows,
    flags_of,
)
from bigfleet.model.machine import MachineState
from bigfleet.model.need import NeedKey


def key_of(fleet: Fleet, demand: Demand, index: int) -> NeedKey:
    """The identity of need `index` among all clusters' needs."""
    return NeedKey(fleet.clusters[int(demand.cluster[index])], *demand.needs[index].key)


class LastDecision:
    """What the last decision remembered of the needs that are still there."""

    def __init__(
        self, fleet: Fleet, demand: Demand, needs: NeedColumns, cycle_memory: CycleMemory
    ) -> None:
        self._fleet, self._demand, self._needs = fleet, demand, needs
        self._reservations = cycle_memory.reservations
        self._spread_pods = cycle_memory.spread_pods
        self._clusters = {memory.cluster: memory for memory in cycle_memory.clusters}

    def cluster(self, number: int) -> ClusterMemory:
        """The memory of a cluster."""
        name = self._fleet.clusters[number]
        return self._clusters.get(name, ClusterMemory(name))

    def reservations(
        self, settings: EngineConfig, now_seconds: float
    ) -> tuple[dict[int, Reservation], set[int]]:
        """By need, the reservations in force; and the needs whose reservation has expired."""
        in_force: dict[int, Reservation] = {}
        expired: set[int] = set()
        if not self._reservations:
            return in_force, expired
        place = self._places_of([reservation.need for reservation in self._reservations])
        for reservation in self._reservations:
            index = place.get(reservation.need, NONE)
            if index == NONE:
                continue
            if now_seconds - reservation.since_seconds < settings.reservation_seconds:
                in_force[index] = reservation
            else:
                expired.add(index)
        return in_force, expired

    def running(self, classes: PodClasses, constrained: Iterable[int]) -> dict[int, int]:
        """By need of the `constrained` ones, how many of its pods with hard topology spread ran,
        without as many as lost machines may have had.
        """
        if not self._spread_pods:
            return {}
        place = {key_of(self._fleet, self._demand, index): index for index in constrained}
        known = [each for each in self._spread_pods if each.need in place]
        needs, found = [place[each.need] for each in known], {}
        present = count_accepted(self._fleet, self._demand, classes, needs).tolist()
        for each, index, machines in zip(known, needs, present, strict=True):
            lost = max(0, each.machines - machines)
            if (pods := each.pods - lost * each.most) > 0:
                found[index] = pods
        return found

    def _places_of(self, keys: Iterable[NeedKey]) -> dict[NeedKey, int]:
        """By key, the index of each of these needs that is still there, among others."""
        # Few needs are asked for, and to compare the keys of all takes longer than to place them.
        fleet, demand, keys = self._fleet, self._demand, {*keys}
        clusters, fingerprints = {key.cluster for key in keys}, {key.fingerprint for key in keys}
        known = [profile.fingerprint in fingerprints for profile in self._needs.profiles]
        its = np.array(known, np.bool_)[self._needs.profile]
        its &= np.array([each in clusters for each in fleet.clusters])[demand.cluster]
        return {key_of(fleet, demand, index): index for index in np.flatnonzero(its).tolist()}


class Arrived:
    """IDLE machines that were on their way to a need in the last decision. They are for the cluster
    that they were created for; an additional one is for the need that asked for it.
    """

    def __init__(self, fleet: Fleet, demand: Demand, additional: Flags, reserved_for: Ints) -> None:
        self._demand, self._additional, self._machines = demand, additional, len(fleet)
        self._last_claimed_by = fleet.last_claimed_by
        was_for_need = (fleet.last_claimed_by != NONE) & (reserved_for == NONE)
        #: those that not all clusters may use
        self.rows: Rows = np.flatnonzero((fleet.state == MachineState.IDLE) & was_for_need)

    @cached_property
    def needs(self) -> frozenset[int]:
        """The needs for which they were created."""
        return frozenset(np.unique(self._last_claimed_by[self.rows]).tolist())

    def of(self, index: int) -> Flags:
        """The machines [n] that were created for the need."""
        its = np.zeros(self._machines, np.bool_)
        its[self.rows[self._last_claimed_by[self.rows] == index]] = True
        return its

    def release(self, unavailable: Flags) -> bool:
        """Let all clusters use them; returns whether any is free."""
        released, self.rows = self.rows, self.rows[:0]
        return not unavailable[released].all()

    def reserved_before(self, index: int, reserved_for: Ints) -> Ints:
        """`reserved_for` [n] as need `index` sees it."""
        # Else a need of another cluster that arrived earlier would take the machine, and each
        # cluster would wait for machines that the other one chose.
        rows = self.rows
        if not len(rows):
            return reserved_for
        holder = self._last_claimed_by[rows]
        open_ = self._demand.cluster[holder] == self._demand.cluster[index]
        open_ &= ~self._additional[holder]
        reserved_for = reserved_for.copy()
        reserved_for[rows[~open_]] = holder[~open_]
        return reserved_for


def count_accepted(
    fleet: Fleet,
    demand: Demand,
    classes: PodClasses,
    needs: Sequence[int],
    drained: Sequence[int] | Rows = (),
) -> Longs:
    """For each of `needs`, how many CONFIGURED machines of its cluster it accepts, without the
    rows `drained`.
    """
    its = np.array(needs, np.intp)
    serving = fleet.state == MachineState.CONFIGURED
    serving[np.asarray(drained, np.intp)] = False
    fits = np.array([classes.fit(index).number for index in needs], np.int64)
    order = np.argsort(demand.cluster[its], kind="stable")
    clusters = demand.cluster[its[order]]
    start = np.searchsorted(clusters, np.arange(len(fleet.clusters) + 1))
    found = np.zeros(len(its), np.int64)
    count_accepting(
        serving, fleet.cluster, fleet.flavour, start, fits[order], classes.accepted, found
    )
    counts = np.empty_like(found)
    counts[order] = found
    return counts


def reserved_machines(fleet: Fleet, demand: Demand, reserved: Iterable[int]) -> Ints:
    """For each machine [n] the need that it drains for or is reserved for, or NONE; `reserved` are
    the needs with reservations.
    """
    has_reservation = flags_of(reserved, len(demand.needs))
    # A draining machine needs no reservation: without it, the need would at once evict the pods
    # of another one.
    kept = fleet.state == MachineState.DRAINING
    kept |= fleet.acquirable & has_reservation[fleet.last_claimed_by]
    return np.where(kept, fleet.last_claimed_by, np.int32(NONE))
