"""Faults of a world that never end."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bigfleet.model.machine import Machine, MachineState
from bigfleet.services.shard.fleet.backoff import Offering


@dataclass(frozen=True)
class PermanentFaults:
    """At most one fault of each type; empty for none.

    `sold_out` cannot be purchased, `machine` never boots, and no Node becomes Ready in
    `unready_cluster`. `silent_operator` is the cluster whose operator reports demand but answers no
    request, `absent_operator` the one whose operator never connects.
    """

    sold_out: Offering | None = None
    machine: str = ""
    unready_cluster: str = ""
    silent_operator: str = ""
    absent_operator: str = ""

    def fails(self, fault: str, machine: Machine) -> bool:
        """Whether `fault`, a field of FaultRates, always happens to the machine."""
        if fault == "stock_out":
            return offering_of(machine) == self.sold_out
        if fault == "boot_failure":
            return machine.id == self.machine or machine.cluster in self._unready()
        return False

    def leaves_usable(self, machine: Machine) -> bool:
        """Whether the unbound machine can be acquired and booted."""
        bought = machine.state is MachineState.IDLE
        return machine.id != self.machine and (bought or offering_of(machine) != self.sold_out)

    @property
    def clusters(self) -> Collection[str]:
        """The clusters that cannot be served."""
        return {*self._unready(), self.silent_operator, self.absent_operator} - {""}

    def _unready(self) -> Collection[str]:
        return {self.unready_cluster} - {""}


def offering_of(machine: Machine) -> Offering:
    """The machine's offering."""
    return Offering(machine.instance_type, machine.zone, machine.capacity_type)


def draw_permanent_faults(
    rng: random.Random, machines: Sequence[Machine], clusters: Sequence[str]
) -> PermanentFaults:
    """Draw one or two permanent faults."""
    fields = ["sold_out", "machine"]
    if len(clusters) > 1:
        fields += ["unready_cluster", "silent_operator", "absent_operator"] * 2
    broken: dict[str, object] = {}
    for field in rng.sample(fields, rng.choice((1, 1, 2))):
        if field == "sold_out":
            broken[field] = offering_of(rng.choice(machines))
        elif field == "machine":
            broken[field] = rng.choice(machines).id
        else:
            broken[field] = clusters[0]
    return PermanentFaults(**broken)  # type: ignore[arg-type]
