"""What never works in a world, however long it lasts."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bigfleet.model.machine import Machine, MachineState
from bigfleet.services.shard.failures import Offering


@dataclass(frozen=True)
class Broken:
    """At most one thing of each kind; none where it is empty.

    `sold_out` cannot be bought, `machine` never boots, and no machine becomes Ready in
    `unready_cluster`. `silent_operator` is the cluster whose operator reports demand and answers no
    question, `absent_operator` the one whose operator never dials.
    """

    sold_out: Offering | None = None
    machine: str = ""
    unready_cluster: str = ""
    silent_operator: str = ""
    absent_operator: str = ""

    def fails(self, fault: str, machine: Machine) -> bool:
        """Whether `fault`, a field of Faults, happens to the machine each time."""
        if fault == "stock_out":
            return offering_of(machine) == self.sold_out
        if fault == "boot_failure":
            return machine.id == self.machine or machine.cluster in self._unready()
        return False

    def spares(self, machine: Machine) -> bool:
        """Whether the machine, which nobody has, can be had and booted."""
        bought = machine.state is MachineState.IDLE
        return machine.id != self.machine and (bought or offering_of(machine) != self.sold_out)

    @property
    def clusters(self) -> Collection[str]:
        """Those that cannot be served."""
        return {*self._unready(), self.silent_operator, self.absent_operator} - {""}

    def _unready(self) -> Collection[str]:
        return {self.unready_cluster} - {""}


def offering_of(machine: Machine) -> Offering:
    """What is sold out together with the machine."""
    return Offering(machine.instance_type, machine.zone, machine.capacity_type)


def something(draw: random.Random, machines: Sequence[Machine], clusters: Sequence[str]) -> Broken:
    """One thing that is broken, or two."""
    kinds = ["sold_out", "machine"]
    if len(clusters) > 1:
        kinds += ["unready_cluster", "silent_operator", "absent_operator"] * 2
    broken: dict[str, object] = {}
    for kind in draw.sample(kinds, draw.choice((1, 1, 2))):
        if kind == "sold_out":
            broken[kind] = offering_of(draw.choice(machines))
        elif kind == "machine":
            broken[kind] = draw.choice(machines).id
        else:
            broken[kind] = clusters[0]
    return Broken(**broken)  # type: ignore[arg-type]
