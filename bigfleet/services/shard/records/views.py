"""What the inventory tells about machines: one as it is, and how one has changed."""

from __future__ import annotations

from dataclasses import dataclass

from bigfleet.model.machine import MachineState
from bigfleet.model.need import NeedKey
from bigfleet.services.shard.records.machine_class import MachineClass


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of state or cluster. `before` is None at first sight, `after` when it is gone.

    `owned` when it was, or is now, for this shard to decide about the machine.
    """

    machine_id: str
    before: MachineState | None
    after: MachineState | None
    former_cluster: str
    cluster: str
    last_error: str
    owned: bool = True


@dataclass(frozen=True, slots=True)
class MachineView:
    """One machine as it is known here; `need` is the one that it serves or is meant for.

    `incarnation` is another number each time that it is configured; 0 while it serves nobody.
    """

    id: str
    state: MachineState
    cluster: str
    need: NeedKey | None
    machine_class: MachineClass
    last_error: str
    incarnation: int = 0
