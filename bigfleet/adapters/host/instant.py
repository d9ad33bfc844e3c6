"""Hosts without a cluster: they boot at once and have no Node."""

from __future__ import annotations

from bigfleet.model.machine import Machine
from bigfleet.ports.host import Boot, HostFailure


class InstantHost:
    """A `Host` for contract tests and for fleets without clusters."""

    async def acquire(self, machine: Machine) -> None:
        """Always succeeds."""

    async def boot(self, boot: Boot, timeout_seconds: float) -> None:  # noqa: ARG002  port's shape
        """Ready at once; HostFailure for an empty blob."""
        if not boot.blob:
            raise HostFailure("the bootstrap blob is empty")

    async def wait_until_node_gone(self, machine: Machine) -> None:
        """Returns at once: there is no Node."""

    async def power_off(self, machine: Machine) -> None:
        """Does nothing."""

    async def close(self) -> None:
        """Does nothing."""
