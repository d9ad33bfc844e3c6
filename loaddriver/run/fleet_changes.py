"""What happens to BigFleet while the load runs: roles are killed and started again, shards join.

All of it is declared by the profile; anything else that dies ends the run. What has happened is
counted, because a gate on a fault that never came would say nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from loaddriver.profile.settings import Fault, ProfileSettings
from loaddriver.run.bigfleet_roles import shard_names
from loaddriver.run.node_source import FleetNodeSource, NodeSource
from loaddriver.substrates.base import Endpoint, RoleSpec, Substrate, SubstrateError


@runtime_checkable
class KillingSubstrate(Protocol):
    """A substrate that can kill one of its roles, as a crash of its host would."""

    async def kill_role(self, name: str) -> None: ...

    async def start_role(self, role: RoleSpec) -> Endpoint: ...


@dataclass
class FleetChanges:
    """The changes that `settings` declare; `specs` are all roles by name. `on_joined` gets each
    role that was not there from the start.
    """

    settings: ProfileSettings
    substrate: KillingSubstrate
    specs: Mapping[str, RoleSpec]
    on_joined: Callable[[Endpoint], None]
    killed: list[str] = field(default_factory=list)
    restarted: list[str] = field(default_factory=list)
    joined: list[str] = field(default_factory=list)

    def numbers(self) -> dict[str, int]:
        """What has happened, for the summary."""
        return {
            "rolesKilled": len(self.killed),
            "rolesRestarted": len(self.restarted),
            "shardsJoined": len(self.joined),
        }

    async def play(self, begin: asyncio.Event, show: Callable[[str], None]) -> None:
        """Make all changes from `begin` on, then wait to be cancelled; `show` says what happens.
        Raises SubstrateError.
        """
        await begin.wait()
        changes: list[Coroutine[Any, Any, None]] = [
            self._fail(fault, show) for fault in self.settings.faults
        ]
        if self.settings.bigfleet.joining_shards:
            changes.append(self._join(self.settings.bigfleet.joining_shards.at_seconds, show))
        async with asyncio.TaskGroup() as group:
            for change in changes:
                group.create_task(change)
        await asyncio.Event().wait()

    async def _fail(self, fault: Fault, show: Callable[[str], None]) -> None:
        await asyncio.sleep(fault.at_seconds)
        show(f"{fault.role} killed")
        await self.substrate.kill_role(fault.role)
        self.killed.append(fault.role)
        await asyncio.sleep(fault.down_seconds)
        await self.substrate.start_role(self.specs[fault.role])
        self.restarted.append(fault.role)
        show(f"{fault.role} is back")

    async def _join(self, at_seconds: float, show: Callable[[str], None]) -> None:
        await asyncio.sleep(at_seconds)
        for name in shard_names(self.settings)[self.settings.bigfleet.shards :]:
            self.on_joined(await self.substrate.start_role(self.specs[name]))
            self.joined.append(name)
            show(f"{name} has joined")


def make_fleet_changes(
    settings: ProfileSettings,
    substrate: Substrate,
    source: NodeSource,
    on_joined: Callable[[Endpoint], None],
) -> FleetChanges | None:
    """The changes of a run; None if the profile has none. Raises SubstrateError if the substrate
    cannot make them.
    """
    if not settings.changing_roles or not isinstance(source, FleetNodeSource):
        return None
    if not isinstance(substrate, KillingSubstrate):
        raise SubstrateError(f"{settings.changing_roles} needs --substrate local")
    return FleetChanges(settings, substrate, source.specs, on_joined)
