"""What a machine's state means for this cluster's objects of it."""

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
    """Which Node of a machine goes: none, one that was being emptied, or whichever is there."""

    NONE = "none"
    RECLAIMED = "reclaimed"
    ANY = "any"


@dataclass(frozen=True)
class PhaseEffects:
    """What follows from a state: the UpcomingNode's `phase`, None when that object goes, whether
    the machine's credential is revoked, and which Node of it is deleted.
    """

    phase: str | None
    revokes: bool
    removal: Removal


def phase_effects(known: str | None, state: MachineState, *, joining: bool) -> PhaseEffects:
    """What to do now that a machine is in `state`, of which the phase `known` was written last.

    `joining` machines were given a credential since: then idle is what they were before, and
    neither that credential nor their new Node must go. The same where nothing is known.
    """
    phase = phase_after(known, state)
    maybe_joining = state is MachineState.IDLE and (joining or known is None)
    if phase not in (None, "Failed"):
        return PhaseEffects(phase, phase == "Ready", Removal.NONE)
    if maybe_joining:
        return PhaseEffects(phase, False, Removal.RECLAIMED)
    return PhaseEffects(phase, True, Removal.ANY)


def phase_after(known: str | None, state: MachineState) -> str | None:
    """The UpcomingNode's next phase; None when the machine has left and the object goes.

    An idle machine is one that has just been made for us, or one that has come back from us; which
    of them, only the phase before can tell.
    """
    if state is MachineState.IDLE and known not in _NOT_JOINED:
        return None
    return _PHASES.get(state)
