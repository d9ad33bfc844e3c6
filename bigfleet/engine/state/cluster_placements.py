"""The pods placed on a cluster's machines, in the order in which they were placed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bigfleet.engine.kernels.scoring import PlacementLog
from bigfleet.engine.snapshot import Longs, Rows


class ClusterPlacements:
    """A log of placements that grows; those that were undone stay in it with 0 pods."""

    def __init__(self) -> None:
        #: how many there are, undone ones included
        self.length = 0
        self._log = PlacementLog(
            np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int64)
        )
        #: how many of them are in the log
        self._logged = 0
        #: those after them
        self._unlogged: list[PlacementLog] = []

    @property
    def log(self) -> PlacementLog:
        """All placements, undone ones included."""
        log, length = self.with_room(0)
        return PlacementLog._make(column[:length] for column in log)

    def present(self) -> PlacementLog:
        """All placements that were not undone."""
        log = self.log
        live = np.flatnonzero(log.pods)
        return PlacementLog._make(column[live] for column in log)

    def of(self, classes: slice) -> PlacementLog:
        """The present ones of a need's classes."""
        machine, pod_class, pods = self.present()
        its = (pod_class >= classes.start) & (pod_class < classes.stop)
        return PlacementLog(machine[its], pod_class[its], pods[its])

    def one_by_one(self, classes: slice) -> Iterator[tuple[int, int, int]]:
        """The same: machine, class and number of pods of each."""
        machine, pod_class, pods = self.of(classes)
        yield from zip(machine.tolist(), pod_class.tolist(), pods.tolist(), strict=True)

    def since(self, length: int) -> PlacementLog:
        """The placements after the first `length`, undone ones included."""
        return PlacementLog._make(column[length:] for column in self.log)

    def append(self, entries: PlacementLog) -> None:
        """Add placements."""
        self._unlogged.append(entries)
        self.length += len(entries.pods)

    def append_one(self, machine: int, pod_class: int, pods: int) -> None:
        """Add one."""
        log, at = self.with_room(1)
        log.machine[at], log.pod_class[at], log.pods[at] = machine, pod_class, pods
        self.extend_to(at + 1)

    def undo(self, at: Rows) -> PlacementLog:
        """Undo the placements `at` these places of the log; returns what they were."""
        log = self.log
        undone = PlacementLog._make(column[at] for column in log)
        log.pods[at] = 0
        return undone

    def restore(self, pods: Longs) -> None:
        """Forget all but the first placements, which have so many `pods` again."""
        self.log.pods[: len(pods)] = pods
        self.extend_to(len(pods))

    def extend_to(self, length: int) -> None:
        """So many placements are in the log: a kernel has written to its room."""
        self._logged = self.length = length

    def with_room(self, entries: int) -> tuple[PlacementLog, int]:
        """The log with room for so many more, and how many placements are in it."""
        length, before = self.length, self._logged
        if length + entries > len(self._log.pods):
            # Most of it is never written to, and takes no time then.
            size = 2 * (length + entries) + 64 if entries else length
            log = PlacementLog._make(np.empty(size, column.dtype) for column in self._log)
            for column, known in zip(log, self._log, strict=True):
                np.asarray(column)[:before] = np.asarray(known)[:before]
            self._log = log
        for added in self._unlogged:
            after = before + len(added.pods)
            for column, values in zip(self._log, added, strict=True):
                np.asarray(column)[before:after] = values
            before = after
        self._logged, self._unlogged = length, []
        return self._log, length
