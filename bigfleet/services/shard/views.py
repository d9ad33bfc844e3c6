"""What the inventory tells about machines: one as it is, and how one has changed."""

from __future__ import annotations

from dataclasses import dataclass

from bigfleet.model.machine import MachineState
from bigfleet.model.need import NeedKey
from bigfleet.services.shard.kinds import Kind


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of state or cluster. `before` is None at first sight, `after` when it is gone.

    `mine` when it was, or is now, for this shard to decide about the machine.
    """

    machine_id: str
    before: MachineState | None
    after: MachineState | None
    former_cluster: str
    cluster: str
    last_error: str
    mine: bool = True


@dataclass(frozen=True, slots=True)
class MachineView:
    """One machine as it is known here; `need` is the one that it serves or is meant for.

    `incarnation` is another number each time that it is configured; 0 while it serves nobody.
    """

    id: str
    state: MachineState
    cluster: str
    need: NeedKey | None
    kind: Kind
    last_error: str
    incarnation: int = 0
