"""A machine's present state, a transition between two states, and counts of free machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bigfleet.engine.snapshot import Flags, Flavour, Ints
from bigfleet.model.domain import Domain
from bigfleet.model.machine import MachineState
from bigfleet.model.need import NeedKey
from bigfleet.services.shard.records.machine_class import MachineClass


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of state or cluster. `before` is None for a new machine, `after` for a gone one.

    `owned` if this shard decides about the machine now, or did before. `provider` as in its class.
    """

    machine_id: str
    before: MachineState | None
    after: MachineState | None
    former_cluster: str
    cluster: str
    last_error: str
    owned: bool = True
    provider: str = ""


@dataclass(frozen=True, slots=True)
class MachineView:
    """One machine as the inventory has it; `need` is the one that it serves or is reserved for.

    `incarnation` differs each time that the machine is configured; 0 while it is unbound.
    """

    id: str
    state: MachineState
    cluster: str
    need: NeedKey | None
    machine_class: MachineClass
    last_error: str
    incarnation: int = 0

    @property
    def provider(self) -> str:
        """The provider that has it; "" if there is only one."""
        return self.machine_class.provider


class BusyMachines(NamedTuple):
    """Machines that serve clusters of other shards, or leave them; P rows.

    `flavours` and `domains` are the inventory's, by the numbers in `flavour`.
    """

    ids: Sequence[str]
    flavour: Ints
    priority: Ints
    #: in a domain of this shard, and being drained: they will be its own
    coming: Flags
    flavours: Sequence[Flavour]
    domains: Sequence[Domain]


class FreeMachines(NamedTuple):
    """How many machines of one flavour, the inventory's with that `number`, are free."""

    number: int
    flavour: Flavour
    domain: Domain
    idle: int
    speculative: int
