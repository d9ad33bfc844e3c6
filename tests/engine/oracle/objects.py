"""The oracle's machines, pods by size and clusters, as plain objects."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from bigfleet.engine.snapshot import NONE, Flavour, Fleet
from bigfleet.model.machine import MachineState

S = MachineState
FREE = (S.IDLE, S.SPECULATIVE)


@dataclass(eq=False)
class Machine:
    """One row of the fleet. `home` is the cluster it is supply for, `reserved_for` the need it
    drains or is kept for. Once acquired or taken in this decision it `is_gone`, `ordered_by` a
    need; what is held back is so from the start.
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
    ahead: bool
    disruption_cost: float
    tie_break: int
    home: int = NONE
    reserved_for: int = NONE
    initially_reserved_for: int = NONE
    is_gone: bool = False
    ordered_by: int = NONE


@dataclass(eq=False)
class PodSize:
    """Pods of one size of need number `need`, size number `number`; `left` have no place."""

    need: int
    number: int
    amounts: dict[str, int]
    pods: int
    share: float = 0.0
    impossible: bool = False
    left: int = 0


@dataclass(eq=False)
class Slot:
    """A machine among those of a cluster, for needs of at most priority `max_priority`; `orderer`
    is the need that ordered it in this decision.
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
        """How many more pods of a size there is room for."""
        return min(self.free(name) // amount for name, amount in size.amounts.items())

    def put(self, size: PodSize, pods: int) -> None:
        """Give so many pods a place here."""
        self.pods[size] = self.pods.get(size, 0) + pods
        size.left -= pods

    def clear(self, which: Iterable[PodSize] | None = None) -> list[int]:
        """Take pods away, all if not told which; whose they were."""
        gone = [size for size in self.pods if which is None or size in which]
        for size in gone:
            size.left += self.pods.pop(size)
        return sorted({size.need for size in gone})


@dataclass
class Cluster:
    """`slots` in keep order; what is kept ahead of gangs is in `headroom_pool` instead. `factors`
    for CPU and memory make their used parts equal in the proportion in which its pods ask for them.
    """

    number: int
    slots: list[Slot] = field(default_factory=list)
    headroom_pool: list[Machine] = field(default_factory=list)
    factors: tuple[float, float] = (1.0, 1.0)


def keep_order(machine: Machine) -> tuple[float, ...]:
    """Those that are least to be given back come first."""
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
        is_gone=fleet.backed_off is not None and bool(fleet.backed_off[row]),
    )
