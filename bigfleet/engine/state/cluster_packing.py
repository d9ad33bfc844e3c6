"""One cluster's machines during a decision, and the pods placed on them.

kube-scheduler packs the pods of all needs together, so a cluster's needs share its machines: each
uses the capacity that the needs before it left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from bigfleet.engine.fit.pod_classes import PodClasses
from bigfleet.engine.kernels.packing import pack
from bigfleet.engine.kernels.placed import claim, collect
from bigfleet.engine.kernels.placing import PASSES, place
from bigfleet.engine.kernels.scoring import (
    BALANCED,
    Machines,
    PlacementLog,
    ScoringStrategy,
    consolidating,
    log_capacity,
)
from bigfleet.engine.kernels.sorting import order_of
from bigfleet.engine.snapshot import NONE, Flags, Ints, Longs, Rows

# The `max_priority` of machines that serve needs of every priority.
ALWAYS = int(np.iinfo(np.int64).max)
# Below every priority: a machine that no need may use.
_NOBODY = int(np.iinfo(np.int64).min)


class _Checkpoint(NamedTuple):
    rows: Rows
    free: Longs
    max_priority: Longs
    has_pods: Flags
    pods: Longs


class ClusterPacking:
    """A cluster's M machines in keep order (those to be reclaimed first come last), and the pods
    placed on them.
    """

    def __init__(self, classes: PodClasses, left: Longs, capacity_of: Longs, kind_of: Ints) -> None:
        """`left` [C], the unplaced pods of each class of the whole demand, is shared and updated;
        `capacity_of` [F, R] is what a machine of each flavour has for this cluster's pods, and
        `kind_of` [F] is equal for flavours that are interchangeable for them.
        """
        self._classes, self._left = classes, left
        self._capacity_of, self._kind_of = capacity_of, kind_of
        resources = capacity_of.shape[1]
        self.consolidating = consolidating(0, 0)
        #: [M] intp, rows of the fleet; NONE for a removed machine
        self.rows: Rows = np.empty(0, np.intp)
        #: [M] int32, index of the flavour
        self.flavour: Ints = np.empty(0, np.int32)
        #: [M] int32, equal for interchangeable flavours
        self.kind: Ints = np.empty(0, np.int32)
        #: [M, R] int64, allocatable for pods
        self.capacity: Longs = np.empty((0, resources), np.int64)
        #: [M, R] int64, what is left of `capacity`
        self.free: Longs = self.capacity.copy()
        #: [M] int64, the highest priority that may use the machine: one acquired in this decision
        #: did not exist when higher priorities had their turn
        self.max_priority: Longs = np.empty(0, np.int64)
        #: [M] bool, the machine holds pods
        self.has_pods: Flags = np.empty(0, np.bool_)
        #: [M] int32, the need that claimed the machine in the last decision, or NONE
        self.last_claimed_by: Ints = np.empty(0, np.int32)
        #: [M] int32, the need that ordered the machine in this decision, or NONE
        self.orderer: Ints = np.empty(0, np.int32)
        self._log = PlacementLog(
            np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int64)
        )
        self._length = 0
        self._orders: dict[str, Longs] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def set_resource_ratio(self, order: Longs) -> None:
        """Consolidate in the ratio of CPU and memory that the classes `order` request."""
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
        """Append machines for needs of at most `priority`; `orderer` is the need that ordered them
        in this decision.
        """
        self._orders = {}
        capacity = self._capacity_of[flavour]
        self.rows = np.concatenate((self.rows, rows))
        self.flavour = np.concatenate((self.flavour, flavour))
        self.kind = np.concatenate((self.kind, self._kind_of[flavour]))
        self.capacity = np.concatenate((self.capacity, capacity))
        self.free = np.concatenate((self.free, capacity))
        priorities = np.broadcast_to(np.asarray(priority, np.int64), len(rows))
        self.max_priority = np.concatenate((self.max_priority, priorities))
        self.orderer = np.concatenate((self.orderer, np.full(len(rows), orderer, np.int32)))
        self.has_pods = np.concatenate((self.has_pods, np.zeros(len(rows), np.bool_)))
        self.last_claimed_by = np.concatenate((self.last_claimed_by, last_claimed_by))

    def in_order(self, name: str, values: Callable[[], Ints]) -> Longs:
        """The machines by ascending `values` [M], none below NONE, in keep order where they are
        equal; remembered by `name` until machines are added.
        """
        if name not in self._orders:
            self._orders[name] = order_of(values().astype(np.int64) - NONE)
        return self._orders[name]

    def checkpoint(self) -> _Checkpoint:
        """A copy for `restore`, valid until machines are added."""
        return _Checkpoint(
            self.rows.copy(),
            self.free.copy(),
            self.max_priority.copy(),
            self.has_pods.copy(),
            self._log.pods[: self._length].copy(),
        )

    def restore(self, checkpoint: _Checkpoint) -> None:
        """Return to `checkpoint`."""
        self.rows, self.free, self.max_priority, self.has_pods, pods = checkpoint
        self._length = len(pods)
        self._log.pods[: self._length] = pods

    def without_pods(self, staying: Flags, left: Longs) -> ClusterPacking:
        """A packing of the `staying` [M] machines without pods, with its own `left` [C]."""
        other = ClusterPacking(self._classes, left, self._capacity_of, self._kind_of)
        other.consolidating = self.consolidating
        other.rows, other.flavour = self.rows[staying], self.flavour[staying]
        other.kind = self.kind[staying]
        other.capacity, other.free = self.capacity[staying], self.capacity[staying]
        other.max_priority, other.has_pods = (
            self.max_priority[staying],
            np.zeros(staying.sum(), np.bool_),
        )
        other.last_claimed_by, other.orderer = self.last_claimed_by[staying], self.orderer[staying]
        return other

    def place(self, order: Longs, priority: int) -> None:
        """Place the pods left of the classes `order`, which have this `priority`.

        Only what finds no place elsewhere goes to the machines that needs of a lower priority
        claimed in the last decision.
        """
        if not self._left[order].any() or not len(self):
            return
        machines, classes = self.machines(), self._classes

        def kernel(log: PlacementLog, length: int) -> int:
            return place(
                machines,
                classes.columns,
                classes.priority,
                classes.share_steps,
                self._left,
                order,
                priority,
                self.consolidating,
                log,
                length,
            )

        self.write(order, kernel, PASSES)

    def place_on(self, rows: Rows, order: Longs, priority: int) -> None:
        """Place pods left of the classes `order`, which have this `priority`, on these machines of
        the fleet.
        """
        with self.only(np.isin(self.rows, rows)):
            if self._left[order].any():
                self._pack(order, priority, self.consolidating)

    @contextmanager
    def only(self, which: Flags) -> Iterator[None]:
        """Let needs use only the machines `which` [M] meanwhile."""
        everywhere = self.max_priority
        self.max_priority = np.where(which, everywhere, _NOBODY)
        yield
        self.max_priority = everywhere

    def place_more(self, order: Longs, priority: int) -> None:
        """Place the pods left after machines were added or pods removed, without consolidating."""
        if self._left[order].any() and len(self):
            self._pack(order, priority, BALANCED)

    def record_placement(self, machine: int, pod_class: int, pods: int) -> None:
        """Place pods of a class on a machine; the caller updates `left`."""
        self.free[machine] -= pods * self._classes.sizes[pod_class]
        self.has_pods[machine] = True
        self._grow_log(1)
        log, at = self._log, self._length
        log.machine[at], log.pod_class[at], log.pods[at] = machine, pod_class, pods
        self._length += 1

    def record_placements(self, machine: Rows, pod_class: Longs, pods: Longs) -> None:
        """Place `pods` [P] of each `pod_class` [P] on each `machine` [P]; the caller updates
        `left`.
        """
        np.subtract.at(self.free, machine, pods[:, None] * self._classes.sizes[pod_class])
        self.has_pods[machine] = True
        self._append(PlacementLog(machine.astype(np.int32), pod_class.astype(np.int32), pods))

    def machines(self) -> Machines:
        """The columns that kernels read and update."""
        return Machines(
            self.capacity,
            self.free,
            self.flavour,
            self.kind,
            self.max_priority,
            self.has_pods,
            self.last_claimed_by,
        )

    def write(
        self, order: Longs, kernel: Callable[[PlacementLog, int], int], passes: int = 1
    ) -> None:
        """Run a kernel that places the classes `order` in so many passes: it gets the log and its
        length, and returns the new length.
        """
        self._grow_log(passes * int(log_capacity(self._left, order, len(self))))
        self._length = kernel(self._log, self._length)

    def entries(self) -> PlacementLog:
        """All placements."""
        live = np.flatnonzero(self._log.pods[: self._length])
        return PlacementLog(
            self._log.machine[live], self._log.pod_class[live], self._log.pods[live]
        )

    def entries_of(self, classes: slice) -> Iterator[tuple[int, int, int]]:
        """The placements of a need's classes: machine, class and number of pods."""
        machine, pod_class, pods = self.placed_of(classes)
        yield from zip(machine.tolist(), pod_class.tolist(), pods.tolist(), strict=True)

    def placed_of(self, classes: slice) -> PlacementLog:
        """The placements of a need's classes, as columns."""
        machine, pod_class, pods = self.entries()
        its = (pod_class >= classes.start) & (pod_class < classes.stop)
        return PlacementLog(machine[its], pod_class[its], pods[its])

    def clear_machine(self, machine: int) -> list[int]:
        """Remove all pods from a machine; returns the needs that lost any, in order."""
        log = self._written()
        at = np.flatnonzero((log.machine == machine) & (log.pods > 0))
        losers: list[int] = np.unique(self._classes.need[log.pod_class[at]]).tolist()
        self._clear(at)
        return losers

    def clear_need(self, classes: slice) -> None:
        """Remove all pods of a need."""
        log = self._written()
        its = (log.pod_class >= classes.start) & (log.pod_class < classes.stop)
        self._clear(np.flatnonzero(its & (log.pods > 0)))

    def remove_machine(self, machine: int) -> None:
        """Remove a machine, which must hold no pods."""
        # The slot stays, so that indices in the log remain valid; no priority is low enough for it.
        self.max_priority[machine] = _NOBODY
        self.rows[machine] = NONE

    def present(self, priority: int) -> Flags:
        """Which machines [M] may serve needs of `priority`."""
        flags: Flags = self.max_priority >= priority
        return flags

    def claim(self, claimed: Ints, additional: Flags) -> None:
        """Write to `claimed` [n] the needs that claim the cluster's machines with pods; which are
        `additional` [N].
        """
        claim(self._log, self._length, self._classes.need, additional, self.rows, claimed)

    @property
    def log(self) -> tuple[PlacementLog, int]:
        """All placements, undone ones included, and how many there are."""
        return self._log, self._length

    @property
    def log_length(self) -> int:
        """How many placements there are at most."""
        return self._length

    def collect(self, classes: Flags, count: int, row: Rows, pod_class: Longs, pods: Longs) -> int:
        """Append all placements of these `classes` [C] to columns with `count` entries; returns how
        many there are now.
        """
        return collect(self._log, self._length, classes, self.rows, count, row, pod_class, pods)

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

    def _append(self, entries: PlacementLog) -> None:
        number = len(entries.pods)
        self._grow_log(number)
        for column, added in zip(self._log, entries, strict=True):
            np.asarray(column)[self._length : self._length + number] = added
        self._length += number

    def _grow_log(self, entries: int) -> None:
        if self._length + entries > len(self._log.pods):
            size = len(self._log.pods) + self._length + 2 * entries + 64
            # Most of it is never written to, and takes no time then.
            log = PlacementLog(*(np.empty(size, column.dtype) for column in self._log))
            for column, before in zip(log, self._written(), strict=True):
                np.asarray(column)[: self._length] = before
            self._log = log

    def _pack(self, order: Longs, priority: int, strategy: ScoringStrategy) -> None:
        machines, classes = self.machines(), self._classes.columns

        def kernel(log: PlacementLog, length: int) -> int:
            return pack(
                machines,
                classes,
                self._left,
                order,
                priority,
                strategy,
                False,
                log,
                length,
            )

        self.write(order, kernel)
