"""The effects of a machine's state on its objects in this cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from bigfleet.model.machine import MachineState

_PHASES: Mapping[MachineState, str] = {
    MachineState.CREATING: "Provisioning",
    MachineState.IDLE: "Launched",
    MachineState.CONFIGURING: "Registered",
    MachineState.CONFIGURED: "Ready",
    MachineState.DRAINING: "Draining",
    MachineState.FAILED: "Failed",
}
_NOT_JOINED = ("Provisioning", "Launched")


class Removal(Enum):
    """Which Node of a machine to delete: none, only one that was being drained, or any."""

    NONE = "none"
    RECLAIMED = "reclaimed"
    ANY = "any"


@dataclass(frozen=True)
class PhaseEffects:
    """The UpcomingNode's `phase`, None to delete it; whether to revoke the machine's credential;
    and which Node of it to delete.
    """

    phase: str | None
    revokes: bool
    removal: Removal


def phase_effects(known: str | None, state: MachineState, *, joining: bool) -> PhaseEffects:
    """The effects of a machine entering `state`; `known` is the phase that was written last.

    `joining` machines were issued a credential since. For them IDLE is the state before that, so
    neither the credential nor the new Node must be deleted; likewise where no phase is known.
    """
    phase = phase_after(known, state)
    maybe_joining = state is MachineState.IDLE and (joining or known is None)
    if phase not in (None, "Failed"):
        return PhaseEffects(phase, phase == "Ready", Removal.NONE)
    if maybe_joining:
        return PhaseEffects(phase, False, Removal.RECLAIMED)
    return PhaseEffects(phase, True, Removal.ANY)


def phase_after(known: str | None, state: MachineState) -> str | None:
    """The UpcomingNode's next phase; None when the machine has left, and the object is deleted.

    An idle machine was either just created for this cluster or released by it; only the previous
    phase tells which.
    """
    if state is MachineState.IDLE and known not in _NOT_JOINED:
        return None
    return _PHASES.get(state)
