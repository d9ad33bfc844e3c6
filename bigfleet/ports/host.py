"""The hosts behind a provider's machines: acquire, boot into a cluster, leave, power off."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from bigfleet.model.errors import BigFleetError
from bigfleet.model.machine import Machine


class HostFailure(BigFleetError):
    """The host cannot do what was requested; the text becomes the machine's last_error."""


@dataclass(frozen=True)
class Boot:
    """One boot of `machine` into `machine.cluster` with that cluster's bootstrap `blob`;
    `operation_id` distinguishes it from earlier boots of the machine.
    """

    machine: Machine
    operation_id: str
    blob: bytes = field(repr=False)


class Host(Protocol):
    """The hardware behind a provider. Every method may be called again after a crash."""

    async def acquire(self, machine: Machine) -> None:
        """Return once the machine has a host; raises HostFailure if none is available.

        MUST succeed if an interrupted earlier call has acquired the host already.
        """

    async def boot(self, boot: Boot, timeout_seconds: float) -> None:
        """Return once the Node registered by this boot is Ready.

        MUST succeed if an interrupted earlier call has done some or all of the work. Raises
        HostFailure for an invalid blob and after `timeout_seconds`.
        """

    async def wait_until_node_gone(self, machine: Machine) -> None:
        """Return once the cluster has no Node of this machine; raises HostFailure if that cannot be
        determined.
        """

    async def power_off(self, machine: Machine) -> None:
        """Return once the machine's Node, if any, gets no more heartbeats.

        MUST retry while the cluster does not answer; raises HostFailure if it can never succeed.
        """

    async def close(self) -> None:
        """Close all connections; hosts keep running."""
