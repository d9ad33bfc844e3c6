"""What a provider asks of its machines' hosts: be there, boot into a cluster, leave, switch off."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from bigfleet.model.errors import BigFleetError
from bigfleet.model.machine import Machine


class HostFailure(BigFleetError):
    """The host cannot do what was asked; the text says why and becomes the machine's last_error."""


@dataclass(frozen=True)
class Boot:
    """One start of `machine` into the cluster `machine.cluster` with that cluster's `blob`.

    `operation_id` tells this start from earlier ones of the same machine.
    """

    machine: Machine
    operation_id: str
    blob: bytes = field(repr=False)


class Host(Protocol):
    """The hardware behind a provider. Every method may be called again after a crash."""

    async def acquire(self, machine: Machine) -> None:
        """Return once there is hardware behind the machine; HostFailure when its seller has none.

        MUST succeed when an earlier call, cut short, has bought it already.
        """

    async def boot(self, boot: Boot, timeout_seconds: float) -> None:
        """Return once the Node that this very boot registered is Ready.

        MUST succeed when an earlier call, cut short, has done some or all of the work. Raises
        HostFailure for a blob that cannot be used and when `timeout_seconds` have passed.
        """

    async def wait_until_node_gone(self, machine: Machine) -> None:
        """Return once the cluster holds no Node of this machine; HostFailure if nobody can tell."""

    async def power_off(self, machine: Machine) -> None:
        """Return once the machine's Node, where there is one, gets no more heartbeats.

        MUST keep trying while the cluster does not answer; HostFailure if it never can succeed.
        """

    async def close(self) -> None:
        """Let go of all connections; hosts keep running."""
