"""A provider's machines, whatever pages they come in."""

from __future__ import annotations

from bigfleet.model.machine import Machine
from bigfleet.ports.provider import CapacityProvider


async def listed(provider: CapacityProvider) -> list[Machine]:
    """All machines. Unavailable if the provider does not answer."""
    return [machine async for page in provider.list() for machine in page.machines]
