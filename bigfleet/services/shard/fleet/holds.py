"""Machines for which nothing is ordered, since what is known of them may be wrong.

A provider that does not answer may have changed any of its machines; of a machine that two
providers list nobody knows which one is meant. Such machines are held: those in service count as
before, and none is acquired, drained or deleted. Other providers' machines are not affected.

After a while nothing is expected any more of machines that were on their way from such a provider:
otherwise those who wait for them would get no others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bigfleet.engine.snapshot import NONE, Flags, Flavour, Fleet, Ints
from bigfleet.model.machine import MachineState
from bigfleet.services.shard.records.views import MachineView

_ORDERABLE = tuple(
    int(state)
    for state in (
        MachineState.IDLE,
        MachineState.SPECULATIVE,
        MachineState.CONFIGURED,
        MachineState.FAILED,
    )
)
_ON_THEIR_WAY = (int(MachineState.CREATING), int(MachineState.DRAINING))


@dataclass
class Holds:
    """`silent` has the error of each provider that does not answer; of those `given_up` nothing is
    expected any more. `colliding` has, for each machine that two providers list, their names.
    """

    silent: Mapping[str, str] = field(default_factory=dict)
    given_up: Collection[str] = ()
    colliding: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def exist(self) -> bool:
        """Whether any machine may be held."""
        return bool(self.silent or self.colliding)

    def reason(self, machine: MachineView) -> str:
        """Why nothing is ordered for the machine; "" if there is no reason."""
        if machine.id in self.colliding:
            first, second = self.colliding[machine.id]
            return (
                f"providers {first} and {second} both list a machine of this id, which must be "
                "unique in the fleet; nothing is ordered for it until one of them drops it"
            )
        why = self.silent.get(machine.provider, "")
        return f"its provider does not answer: {why}" if why else ""

    def flags(
        self, flavour: Ints, flavours: Sequence[Flavour], rows_of: Callable[[Sequence[str]], Ints]
    ) -> Flags:
        """Which machines are held; `rows_of` finds machines by their ids."""
        held = _of_providers(self.silent, flavours)[flavour]
        if self.colliding:
            rows = rows_of([*self.colliding])
            held[rows[rows != NONE]] = True
        return held

    def show(self, fleet: Fleet, wanted: Ints, held: Flags) -> Fleet:
        """Show `held` machines as such, and what is not expected any more as nobody's: a machine
        that is about to join as failed, others without the need in `wanted` that waits for them.
        """
        if self.given_up:
            lost = _of_providers(self.given_up, fleet.flavours)[fleet.flavour]
            wanted[lost & np.isin(fleet.state, _ON_THEIR_WAY)] = NONE
            fleet.state[lost & (fleet.state == MachineState.CONFIGURING)] = MachineState.FAILED
        return replace(fleet, backed_off=held & np.isin(fleet.state, _ORDERABLE))


def _of_providers(providers: Collection[str], flavours: Sequence[Flavour]) -> Flags:
    """One flag for each flavour, and a final False that NONE indexes."""
    return np.array([*(each.provider in providers for each in flavours), False], np.bool_)
