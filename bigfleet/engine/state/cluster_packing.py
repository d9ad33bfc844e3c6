"""One cluster's machines during a decision, and which of its pods are counted on them.

kube-scheduler packs the pods of all needs together, so a cluster's needs share its machines: each
takes what those before it have left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bigfleet.engine.fit.pod_classes import NeedType, PodClasses
from bigfleet.engine.kernels.packing import (
    BALANCED,
    Machines,
    PlacementLog,
    ScoringStrategy,
    consolidating,
    log_capacity,
    pack,
)
from bigfleet.engine.snapshot import NONE, Flags, Ints, Longs, Rows

# Machines that are there from the start serve needs of every priority.
ALWAYS = int(np.iinfo(np.int64).max)
_MOST_NEEDS = 1 << 31
_STEPS = 1 << 20
_NO_MACHINES: Longs = np.empty(0, np.int64)


class _Checkpoint(NamedTuple):
    rows: Rows
    free: Longs
    max_priority: Longs
    has_pods: Flags
    pods: Longs


class MachineDomains(NamedTuple):
    """For K topology keys the domain [K, M] of each machine, and whether it is `known` [K, M]; the
    numbers are below `domains`.
    """

    domain: Ints
    known: Flags
    domains: int


class ClusterPacking:
    """M machines in keep order: the first are the last to be found superfluous.

    `rows` [M] are their rows of the fleet, `flavour` [M] their flavours, `capacity` and `free` [M,
    R] what they have for pods in all and what is left. A machine that was acquired in this decision
    for a need serves only needs of at most that need's priority (`max_priority` [M]): those of
    higher priority had their turn before it was there. `has_pods` [M]: it holds pods.
    """

    def __init__(self, classes: PodClasses, left: Longs, capacity_of: Longs) -> None:
        """`left` [C] is how many pods of each class of the whole demand have no place yet, and is
        kept current; `capacity_of` [F, R] is what this cluster's pods may use of each flavour.
        """
        self._classes, self._left, self._capacity_of = classes, left, capacity_of
        resources = capacity_of.shape[1]
        self.consolidating = consolidating(0, 0)
        self._accepted_by: dict[int, tuple[Longs, int]] = {}
        self.rows: Rows = np.empty(0, np.intp)
        self.flavour: Ints = np.empty(0, np.int32)
        self.capacity: Longs = np.empty((0, resources), np.int64)
        self.free: Longs = self.capacity.copy()
        self.max_priority: Longs = np.empty(0, np.int64)
        self.has_pods: Flags = np.empty(0, np.bool_)
        self.last_claimed_by: Ints = np.empty(0, np.int32)
        self.orderer: Ints = np.empty(0, np.int32)
        self._log = PlacementLog(
            np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int64)
        )
        self._length = 0
        self._machine_domains: dict[tuple[str, ...], tuple[Ints, MachineDomains]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def set_resource_ratio(self, order: Longs) -> None:
        """These are the classes that will be counted here: gather them in their proportion."""
        asked = (self._classes.sizes[order] * self._left[order][:, None].astype(np.float64)).sum(
            axis=0
        )
        parts = asked[:2] / np.maximum(self.capacity.astype(np.float64).sum(axis=0)[:2], 1)
        self.consolidating = consolidating(float(parts[0]), float(parts[1]))

    def add(
        self,
        rows: Rows,
        flavour: Ints,
        last_claimed_by: Ints,
        priority: int | Longs = ALWAYS,
        orderer: int = NONE,
    ) -> None:
        """Add machines behind those that are here, for needs of at most `priority`; `orderer` is
        the need that ordered them in this decision.
        """
        capacity = self._capacity_of[flavour]
        self.rows = np.concatenate((self.rows, rows))
        self.flavour = np.concatenate((self.flavour, flavour))
        self.capacity = np.concatenate((self.capacity, capacity))
        self.free = np.concatenate((self.free, capacity))
        priorities = np.broadcast_to(np.asarray(priority, np.int64), len(rows))
        self.max_priority = np.concatenate((self.max_priority, priorities))
        self.orderer = np.concatenate((self.orderer, np.full(len(rows), orderer, np.int32)))
        self.has_pods = np.concatenate((self.has_pods, np.zeros(len(rows), np.bool_)))
        self.last_claimed_by = np.concatenate((self.last_claimed_by, last_claimed_by))

    def checkpoint(self) -> _Checkpoint:
        """What `restore` brings back, as long as no machines are added."""
        return _Checkpoint(
            self.rows.copy(),
            self.free.copy(),
            self.max_priority.copy(),
            self.has_pods.copy(),
            self._log.pods[: self._length].copy(),
        )

    def restore(self, checkpoint: _Checkpoint) -> None:
        """Be as at `checkpoint`."""
        self.rows, self.free, self.max_priority, self.has_pods, pods = checkpoint
        self._length = len(pods)
        self._log.pods[: self._length] = pods

    def without_pods(self, staying: Flags, left: Longs) -> ClusterPacking:
        """A book of those machines that `staying`, without any pods; `left` is its own."""
        other = ClusterPacking(self._classes, left, self._capacity_of)
        other.consolidating = self.consolidating
        other.rows, other.flavour = self.rows[staying], self.flavour[staying]
        other.capacity, other.free = self.capacity[staying], self.capacity[staying]
        other.max_priority, other.has_pods = (
            self.max_priority[staying],
            np.zeros(staying.sum(), np.bool_),
        )
        other.last_claimed_by, other.orderer = self.last_claimed_by[staying], self.orderer[staying]
        return other

    def place(self, order: Longs, priority: int) -> None:
        """Give places to what is left of the classes `order`, of `priority`, best first.

        First so that pods gather on few machines; where some find no place that way, so that as
        little as possible is stranded.
        """
        if not self._left[order].any() or not len(self):
            return
        free, has_pods, length = self.free.copy(), self.has_pods.copy(), self._length
        before = self._left[order].copy()
        self._pack(order, priority, self.consolidating)
        consolidated = self._left[order].copy()
        if not consolidated.any():
            return
        kept, packed = (self.free, self.has_pods), self._entries_since(length)
        self.free, self.has_pods, self._length = free, has_pods, length
        self._left[order] = before
        self._pack(order, priority, BALANCED)
        # In steps, so that sums are exact and a tie is one.
        dominant_share = np.rint(self._classes.dominant_share[order] * _STEPS)
        if (self._left[order] * dominant_share).sum() >= (consolidated * dominant_share).sum():
            self.free, self.has_pods = kept
            self._left[order] = consolidated
            self._length = length
            self._append(packed)

    def place_more(self, order: Longs, priority: int) -> None:
        """Give places to what is left, after machines were added or pods went."""
        if self._left[order].any() and len(self):
            self._pack(order, priority, BALANCED)

    def record_placement(self, machine: int, pod_class: int, pods: int) -> None:
        """Write down that a machine takes pods of a class; what is left of it is the caller's."""
        self.free[machine] -= pods * self._classes.sizes[pod_class]
        self.has_pods[machine] = True
        self._append(
            PlacementLog(
                np.array([machine], np.int32), np.array([pod_class], np.int32), np.array([pods])
            )
        )

    def machines(self) -> Machines:
        """What kernels read and write."""
        return Machines(
            self.capacity,
            self.free,
            self.flavour,
            self.max_priority,
            self.has_pods,
            self.last_claimed_by,
        )

    def write(self, order: Longs, kernel: Callable[[PlacementLog, int], int]) -> None:
        """Have a kernel place the classes `order`: it is given the log and its length, and returns
        the new length.
        """
        self._grow_log(int(log_capacity(self._left, order, len(self))))
        self._length = kernel(self._log, self._length)

    def entries(self) -> PlacementLog:
        """All that is placed."""
        live = np.flatnonzero(self._log.pods[: self._length])
        return PlacementLog(
            self._log.machine[live], self._log.pod_class[live], self._log.pods[live]
        )

    def entries_of(self, classes: slice) -> Iterator[tuple[int, int, int]]:
        """What is placed of a need's classes: machine, class and number of pods."""
        machine, pod_class, pods = self.placed_of(classes)
        yield from zip(machine.tolist(), pod_class.tolist(), pods.tolist(), strict=True)

    def placed_of(self, classes: slice) -> PlacementLog:
        """What is placed of a need's classes."""
        machine, pod_class, pods = self.entries()
        its = (pod_class >= classes.start) & (pod_class < classes.stop)
        return PlacementLog(machine[its], pod_class[its], pods[its])

    def domains_of(
        self, keys: tuple[str, ...], find: Callable[[tuple[str, ...], Ints], MachineDomains]
    ) -> MachineDomains:
        """What `find` says of the machines' flavours, asked once for all needs with these keys."""
        flavour, found = self._machine_domains.get(keys, (None, None))
        if found is None or flavour is not self.flavour:
            found = find(keys, self.flavour)
            self._machine_domains[keys] = self.flavour, found
        return found

    def clear_machine(self, machine: int) -> list[int]:
        """Take all pods off a machine; the needs that lost any, in order."""
        log = self._written()
        at = np.flatnonzero((log.machine == machine) & (log.pods > 0))
        losers: list[int] = np.unique(self._classes.need[log.pod_class[at]]).tolist()
        self._clear(at)
        return losers

    def clear_need(self, classes: slice) -> None:
        """Take all pods of a need off its machines."""
        log = self._written()
        its = (log.pod_class >= classes.start) & (log.pod_class < classes.stop)
        self._clear(np.flatnonzero(its & (log.pods > 0)))

    def remove_machine(self, machine: int) -> None:
        """The machine, which holds no pods, serves nobody here any more."""
        self.max_priority[machine] = np.iinfo(np.int64).min
        self.rows[machine] = NONE

    def present(self, priority: int) -> Flags:
        """Which machines may serve needs of `priority`."""
        flags: Flags = self.max_priority >= priority
        return flags

    def holders(self) -> Ints:
        """For each machine the need that holds it, or NONE: an additional need with pods on it, or
        else the first in the demand's order.
        """
        machine, pod_class, _ = self.entries()
        need = self._classes.need[pod_class].astype(np.int64)
        rank = np.where(
            self._classes.need_type[need] == NeedType.ADDITIONAL, need - _MOST_NEEDS, need
        )
        first = np.full(len(self), _MOST_NEEDS, np.int64)
        np.minimum.at(first, machine, rank)
        first[first < 0] += _MOST_NEEDS
        first[first == _MOST_NEEDS] = NONE
        return first.astype(np.int32)

    def _clear(self, at: Rows) -> None:
        machine, pod_class, pods = (column[at] for column in self._log)
        np.add.at(self.free, machine, pods[:, None] * self._classes.sizes[pod_class])
        np.add.at(self._left, pod_class, pods)
        self._log.pods[at] = 0
        log = self._written()
        self.has_pods[:] = False
        self.has_pods[log.machine[log.pods > 0]] = True

    def _written(self) -> PlacementLog:
        log, part = self._log, slice(0, self._length)
        return PlacementLog(log.machine[part], log.pod_class[part], log.pods[part])

    def _entries_since(self, length: int) -> PlacementLog:
        log, part = self._log, slice(length, self._length)
        return PlacementLog(
            log.machine[part].copy(), log.pod_class[part].copy(), log.pods[part].copy()
        )

    def _append(self, entries: PlacementLog) -> None:
        number = len(entries.pods)
        self._grow_log(number)
        for column, added in zip(self._log, entries, strict=True):
            np.asarray(column)[self._length : self._length + number] = added
        self._length += number

    def _grow_log(self, entries: int) -> None:
        if self._length + entries > len(self._log.pods):
            more = self._length + 2 * entries + 64
            self._log = PlacementLog(
                *(np.concatenate((column, np.empty(more, column.dtype))) for column in self._log)
            )

    def _accepting(self, flavour_fits: Sequence[int]) -> tuple[Longs, Longs]:
        """The machines that each of these accepts, one after the other, and where they end."""
        parts, ends = [], np.zeros(len(self._classes.accepted) + 1, np.int64)
        for row in flavour_fits:
            known, looked_at = self._accepted_by.get(row, (_NO_MACHINES, 0))
            if looked_at < len(self):
                new = np.flatnonzero(self._classes.accepted[row, self.flavour[looked_at:]])
                known = np.concatenate((known, new + looked_at))
                self._accepted_by[row] = known, len(self)
            parts.append(known)
            ends[row + 1] = len(known)
        return np.concatenate(parts or [_NO_MACHINES]), ends.cumsum()

    def _pack(self, order: Longs, priority: int, strategy: ScoringStrategy) -> None:
        machines, classes = self.machines(), self._classes.columns
        accepting, ends = self._accepting(np.unique(classes.flavour_fit[order]).tolist())

        def kernel(log: PlacementLog, length: int) -> int:
            return pack(
                machines,
                classes,
                accepting,
                ends,
                self._left,
                order,
                priority,
                strategy,
                log,
                length,
            )

        self.write(order, kernel)
