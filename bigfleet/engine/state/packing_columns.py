"""Machines as packing sees them: what each has left, and which needs may use it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigfleet.engine.kernels.scoring import Machines
from bigfleet.engine.snapshot import NONE, Flags, Ints, Longs, Rows

#: the `max_priority` of machines that serve needs of every priority
ALWAYS = int(np.iinfo(np.int64).max)
#: below every priority: that of a machine that no need may use
NOBODY = int(np.iinfo(np.int64).min)


class PackingColumns(NamedTuple):
    """M machines in keep order: those to be reclaimed first come last."""

    #: [M] intp, rows of the fleet; NONE for a removed machine
    rows: Rows
    #: [M] int32, index of the flavour
    flavour: Ints
    #: [M] int32, equal for interchangeable flavours
    kind: Ints
    #: [M, R] int64, allocatable for pods
    capacity: Longs
    #: [M, R] int64, what is left of `capacity`
    free: Longs
    #: [M] int64, the highest priority that may use the machine: one acquired in this decision did
    #: not exist when higher priorities had their turn
    max_priority: Longs
    #: [M] bool, the machine holds pods
    has_pods: Flags
    #: [M] int32, the need that claimed the machine in the last decision, or NONE
    last_claimed_by: Ints
    #: [M] int32, the need that ordered the machine in this decision, or NONE
    orderer: Ints

    @classmethod
    def empty_of(
        cls,
        rows: Rows,
        flavour: Ints,
        kind: Ints,
        capacity: Longs,
        max_priority: Longs,
        last_claimed_by: Ints,
    ) -> PackingColumns:
        """Machines without pods that no need has ordered."""
        machines = len(rows)
        return cls(
            rows,
            flavour,
            kind,
            capacity,
            capacity.copy(),
            max_priority,
            np.zeros(machines, np.bool_),
            last_claimed_by,
            np.full(machines, NONE, np.int32),
        )

    def part(self, its: slice) -> PackingColumns:
        """Some of the machines, as views."""
        return PackingColumns._make(column[its] for column in self)

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
