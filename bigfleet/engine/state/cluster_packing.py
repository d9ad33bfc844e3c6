"""One cluster's machines during a decision, and the pods placed on them.

kube-scheduler packs the pods of all needs together, so a cluster's needs share its machines: each
uses the capacity that the needs before it left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

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
    log_capacity,
)
from bigfleet.engine.kernels.sorting import order_of
from bigfleet.engine.snapshot import NONE, Flags, Ints, Longs, Rows
from bigfleet.engine.state.cluster_placements import ClusterPlacements
from bigfleet.engine.state.packing_columns import ALWAYS, NOBODY, PackingColumns

# Where the one cluster's machines and placements begin.
_FIRST = np.zeros(1, np.int64)


class _Checkpoint(NamedTuple):
    rows: Rows
    free: Longs
    max_priority: Longs
    has_pods: Flags
    pods: Longs


class ClusterPacking:
    """A cluster's machines, and the pods placed on them; it has the columns of PackingColumns."""

    def __init__(
        self,
        classes: PodClasses,
        left: Longs,
        capacity_of: Longs,
        kind_of: Ints,
        columns: PackingColumns,
        strategy: ScoringStrategy,
        *,
        is_common: bool = False,
    ) -> None:
        """`left` [C], the unplaced pods of each class of the whole demand, is shared and updated;
        `capacity_of` [F, R] is what a machine of each flavour has for this cluster's pods, and
        `kind_of` [F] is equal for flavours that are interchangeable for them. `is_common` says
        that `columns` are parts of those of many clusters.
        """
        self.classes, self.left = classes, left
        self._capacity_of, self._kind_of = capacity_of, kind_of
        self.consolidating = strategy
        self._take_columns(columns)
        #: the columns are parts of those of many clusters, and nothing has happened to the machines
        #: but that pods were placed there
        self.is_common = is_common
        self.placements = ClusterPlacements()
        self._orders: dict[str, Longs] = {}

    def _take_columns(self, columns: PackingColumns) -> None:
        self.rows, self.flavour, self.kind, self.capacity, self.free = columns[:5]
        self.max_priority, self.has_pods, self.last_claimed_by, self.orderer = columns[5:]

    def __len__(self) -> int:
        return len(self.rows)

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
        self._orders, self.is_common = {}, False
        added = PackingColumns.empty_of(
            rows,
            flavour,
            self._kind_of[flavour],
            self._capacity_of[flavour],
            np.broadcast_to(np.asarray(priority, np.int64), len(rows)),
            last_claimed_by,
        )
        added.orderer[:] = orderer
        both: Iterable[Any] = zip(self.columns(), added, strict=True)
        self._take_columns(PackingColumns._make(map(np.concatenate, both)))

    def columns(self) -> PackingColumns:
        """The machines, as they are now."""
        return PackingColumns(
            self.rows,
            self.flavour,
            self.kind,
            self.capacity,
            self.free,
            self.max_priority,
            self.has_pods,
            self.last_claimed_by,
            self.orderer,
        )

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
            self.placements.log.pods.copy(),
        )

    def restore(self, checkpoint: _Checkpoint) -> None:
        """Return to `checkpoint`."""
        self.is_common = False
        self.rows, self.free, self.max_priority, self.has_pods, pods = checkpoint
        self.placements.restore(pods)

    def without_pods(self, staying: Flags, left: Longs) -> ClusterPacking:
        """A packing of the `staying` [M] machines without pods, with its own `left` [C]."""
        others = PackingColumns._make(column[staying] for column in self.columns())
        without = others._replace(
            free=others.capacity.copy(), has_pods=np.zeros_like(others.has_pods)
        )
        return ClusterPacking(
            self.classes, left, self._capacity_of, self._kind_of, without, self.consolidating
        )

    def place(self, order: Longs, priority: int) -> None:
        """Place the pods left of the classes `order`, which have this `priority`.

        Only what finds no place elsewhere goes to the machines that needs of a lower priority
        claimed in the last decision.
        """
        if not self.left[order].any() or not len(self):
            return
        machines, classes = self.machines(), self.classes

        def kernel(log: PlacementLog, length: int) -> int:
            return place(
                machines,
                classes.columns,
                classes.priority,
                classes.share_steps,
                self.left,
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
            if self.left[order].any():
                self._pack(order, priority, self.consolidating)

    @contextmanager
    def only(self, which: Flags) -> Iterator[None]:
        """Let needs use only the machines `which` [M] meanwhile."""
        everywhere = self.max_priority
        self.max_priority = np.where(which, everywhere, NOBODY)
        yield
        self.max_priority = everywhere

    def place_more(self, order: Longs, priority: int) -> None:
        """Place the pods left after machines were added or pods removed, without consolidating."""
        if self.left[order].any() and len(self):
            self._pack(order, priority, BALANCED)

    def record_placement(self, machine: int, pod_class: int, pods: int) -> None:
        """Place pods of a class on a machine; the caller updates `left`."""
        self.free[machine] -= pods * self.classes.sizes[pod_class]
        self.has_pods[machine] = True
        self.placements.append_one(machine, pod_class, pods)

    def record_placements(self, machine: Rows, pod_class: Longs, pods: Longs) -> None:
        """Place `pods` [P] of each `pod_class` [P] on each `machine` [P]; the caller updates
        `left`.
        """
        np.subtract.at(self.free, machine, pods[:, None] * self.classes.sizes[pod_class])
        self.has_pods[machine] = True
        entries = PlacementLog(machine.astype(np.int32), pod_class.astype(np.int32), pods)
        self.placements.append(entries)

    def machines(self) -> Machines:
        """The columns that kernels read and update."""
        return self.columns().machines()

    def write(
        self, order: Longs, kernel: Callable[[PlacementLog, int], int], passes: int = 1
    ) -> None:
        """Run a kernel that places the classes `order` in so many passes: it gets the log and its
        length, and returns the new length.
        """
        room = passes * int(log_capacity(self.left, order, len(self)))
        self.placements.extend_to(kernel(*self.placements.with_room(room)))

    def clear_machine(self, machine: int) -> list[int]:
        """Remove all pods from a machine; returns the needs that lost any, in order."""
        log = self.placements.log
        at = np.flatnonzero((log.machine == machine) & (log.pods > 0))
        losers: list[int] = np.unique(self.classes.need[log.pod_class[at]]).tolist()
        self._clear(at)
        return losers

    def clear_need(self, classes: slice) -> None:
        """Remove all pods of a need."""
        log = self.placements.log
        its = (log.pod_class >= classes.start) & (log.pod_class < classes.stop)
        self._clear(np.flatnonzero(its & (log.pods > 0)))

    def remove_machine(self, machine: int) -> None:
        """Remove a machine, which must hold no pods."""
        self.is_common = False
        # The slot stays, so that indices in the log remain valid; no priority is low enough for it.
        self.max_priority[machine] = NOBODY
        self.rows[machine] = NONE

    def present(self, priority: int) -> Flags:
        """Which machines [M] may serve needs of `priority`."""
        flags: Flags = self.max_priority >= priority
        return flags

    def claim(self, claimed: Ints, additional: Flags) -> None:
        """Write to `claimed` [n] the needs that claim the cluster's machines with pods; which are
        `additional` [N].
        """
        log = self.placements.log
        claim(
            log, _FIRST, np.array([len(log.pods)]), _FIRST,
            self.classes.need, additional, self.rows, claimed,
        )  # fmt: skip

    def collect(self, classes: Flags, count: int, row: Rows, pod_class: Longs, pods: Longs) -> int:
        """Append all placements of these `classes` [C] to columns with `count` entries; returns how
        many there are now.
        """
        log = self.placements.log
        end = np.array([len(log.pods)])
        return collect(log, _FIRST, end, _FIRST, classes, self.rows, count, row, pod_class, pods)

    def _clear(self, at: Rows) -> None:
        self.is_common = False
        machine, pod_class, pods = self.placements.undo(at)
        np.add.at(self.free, machine, pods[:, None] * self.classes.sizes[pod_class])
        np.add.at(self.left, pod_class, pods)
        log = self.placements.log
        self.has_pods[:] = False
        self.has_pods[log.machine[log.pods > 0]] = True

    def _pack(self, order: Longs, priority: int, strategy: ScoringStrategy) -> None:
        machines, classes = self.machines(), self.classes.columns

        def kernel(log: PlacementLog, length: int) -> int:
            return pack(
                machines,
                classes,
                self.left,
                order,
                priority,
                strategy,
                False,
                log,
                length,
            )

        self.write(order, kernel)
