"""Hosts without a cluster: they boot at once and leave no Node behind."""

from __future__ import annotations

from bigfleet.model.machine import Machine
from bigfleet.ports.host import Boot, HostFailure


class InstantHost:
    """A `Host` for tests of the provider's contract and for fleets that exist on paper only."""

    async def acquire(self, machine: Machine) -> None:
        """There is always one more."""

    async def boot(self, boot: Boot, timeout_seconds: float) -> None:  # noqa: ARG002  port's shape
        """Ready at once; HostFailure for an empty blob, which no host could boot from."""
        if not boot.blob:
            raise HostFailure("the bootstrap blob is empty")

    async def wait_until_node_gone(self, machine: Machine) -> None:
        """At once: nobody runs pods here, so there is no Node to wait for."""

    async def power_off(self, machine: Machine) -> None:
        """Nothing is running."""

    async def close(self) -> None:
        """Nothing is open."""
