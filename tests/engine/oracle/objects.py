"""The oracle's machines, pods by size and clusters, as plain objects."""

from __future__ import annotations

import math
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from bigfleet.engine.snapshot import NONE, Flavour, Fleet
from bigfleet.model.machine import MachineState

S = MachineState
ACQUIRABLE_STATES = (S.IDLE, S.SPECULATIVE)


@dataclass(eq=False)
class Machine:
    """One row of the fleet. `supply_cluster` is the one it is supply for, `reserved_for` the need
    it drains for or is reserved for, `arrived_for` the one that it was on its way to. It
    `is_unavailable` once `ordered_by` a need in this decision, or if it is backed off.
    """

    row: int
    flavour: Flavour
    state: MachineState
    cluster: int
    destination: int
    last_claimed_by: int
    last_priority: int
    last_interruption: int
    last_reclamation: int
    unused_since: float
    headroom: bool
    disruption_cost: float
    tie_break: int
    supply_cluster: int = NONE
    reserved_for: int = NONE
    initially_reserved_for: int = NONE
    arrived_for: int = NONE
    is_unavailable: bool = False
    backed_off_for: Set[int] = frozenset()
    ordered_by: int = NONE


@dataclass(eq=False)
class PodSize:
    """Pods of one size of need number `need`, size number `number`; `left` are unplaced."""

    need: int
    number: int
    amounts: dict[str, int]
    pods: int
    share: float = 0.0
    impossible: bool = False
    left: int = 0


@dataclass(eq=False)
class Slot:
    """A machine of a cluster, for needs of at most `max_priority`; `orderer` is the need that
    ordered it in this decision.
    """

    machine: Machine
    room: dict[str, int]
    max_priority: float = math.inf
    orderer: int = NONE
    pods: dict[PodSize, int] = field(default_factory=dict)

    def free(self, name: str) -> int:
        """What is left of a resource."""
        used = sum(size.amounts.get(name, 0) * pods for size, pods in self.pods.items())
        return self.room.get(name, 0) - used

    def fits(self, size: PodSize) -> int:
        """How many more pods of a size fit."""
        return min(self.free(name) // amount for name, amount in size.amounts.items())

    def put(self, size: PodSize, pods: int) -> None:
        """Place pods."""
        self.pods[size] = self.pods.get(size, 0) + pods
        size.left -= pods

    def clear(self, which: Iterable[PodSize] | None = None) -> list[int]:
        """Remove pods of the given sizes, or all; returns their needs."""
        removed = [size for size in self.pods if which is None or size in which]
        for size in removed:
            size.left += self.pods.pop(size)
        return sorted({size.need for size in removed})


@dataclass
class Cluster:
    """`slots` in keep order, headroom left out; `factors` weigh CPU and memory utilization in the
    ratio of the cluster's requests.
    """

    number: int
    slots: list[Slot] = field(default_factory=list)
    headroom_pool: list[Machine] = field(default_factory=list)
    factors: tuple[float, float] = (1.0, 1.0)


def keep_order(machine: Machine) -> tuple[float, ...]:
    """The machines to be reclaimed last come first."""
    known = math.isfinite(machine.disruption_cost)
    arrival = {S.CONFIGURED: 0, S.CONFIGURING: 1, S.CREATING: 2}.get(machine.state, 3)
    return (
        known,
        -machine.disruption_cost if known else 0.0,
        machine.last_claimed_by == NONE,
        arrival,
        machine.flavour.price_per_hour,
        -machine.last_reclamation,
        machine.tie_break,
    )


def machine_of(fleet: Fleet, row: int) -> Machine:
    """One row."""
    return Machine(
        row,
        fleet.flavours[int(fleet.flavour[row])],
        S(int(fleet.state[row])),
        int(fleet.cluster[row]),
        int(fleet.destination[row]),
        int(fleet.last_claimed_by[row]),
        int(fleet.priority[row]),
        int(fleet.interruption_bucket[row]),
        int(fleet.reclamation_bucket[row]),
        float(fleet.unused_since_seconds[row]),
        bool(fleet.headroom[row]),
        float(fleet.disruption_cost[row]),
        int(fleet.tie_break[row]),
        is_unavailable=fleet.backed_off is not None and bool(fleet.backed_off[row]),
        backed_off_for={
            int(column[row])
            for column in (fleet.backed_off_for, fleet.backed_off_for_too)
            if column is not None
        },
    )
