"""What happens to BigFleet while the load runs: roles are killed and started again, shards join and
leave, prices move, and kinds of spot machines are interrupted.

All of it is declared by the profile; anything else that dies ends the run. What has happened is
counted, because a gate on a fault that never came would say nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from bigfleet.api.auth.identity import Identity, Principal
from loaddriver.plan.market import NO_CHANGES, Interruption, MarketPlan
from loaddriver.profile.bigfleet import LeavingShard
from loaddriver.profile.settings import Fault, ProfileSettings
from loaddriver.record.watching import now_micros
from loaddriver.run.bigfleet_roles import coordinators_of, market_of
from loaddriver.run.node_source import FleetNodeSource, NodeSource
from loaddriver.run.shard_parts import remove_shard
from loaddriver.run.spot_notices import act_on_notice
from loaddriver.sizing.market import UNCHANGED, PlayedMarket
from loaddriver.substrates.base import Cluster, Endpoint, RoleSpec, Substrate, SubstrateError


def write_market(market: PlayedMarket, path: Path) -> None:
    """Write the providers' market file, which they find whole or not at all."""
    draft = path.with_suffix(".new")
    draft.write_bytes(msgspec.json.Encoder().encode_lines(market.provider_lines()))
    draft.rename(path)


@runtime_checkable
class KillingSubstrate(Protocol):
    """A substrate that can kill one of its roles, as a crash of its host would, and has the
    identity of an administrator.
    """

    async def kill_role(self, name: str) -> None: ...

    async def start_role(self, role: RoleSpec) -> Endpoint: ...

    def identity(self, name: Principal) -> Identity: ...


@dataclass
class FleetChanges:
    """The changes that `settings` declare; `specs` are all roles by name. `on_joined` gets each
    role that was not there from the start. `coordinators` remove shards. The providers
    follow the `market` by `market_file`; `played_market` has its times once it is written.
    """

    settings: ProfileSettings
    substrate: KillingSubstrate
    specs: Mapping[str, RoleSpec]
    on_joined: Callable[[Endpoint], None]
    coordinators: Sequence[Endpoint] = ()
    market: MarketPlan = NO_CHANGES
    market_file: Path = Path()
    clusters: Sequence[Cluster] = ()
    played_market: PlayedMarket = UNCHANGED
    killed: list[str] = field(default_factory=list)
    restarted: list[str] = field(default_factory=list)
    joined: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def numbers(self) -> dict[str, int]:
        """What has happened, for the summary."""
        return {
            "rolesKilled": len(self.killed),
            "rolesRestarted": len(self.restarted),
            "shardsJoined": len(self.joined),
            "shardsLeft": len(self.left),
        }

    async def play(
        self,
        begin: asyncio.Event,
        show: Callable[[str], None],
        began_micros: Callable[[], int] = now_micros,
    ) -> None:
        """Make all changes from `begin` on, then wait to be cancelled; `show` says what happens.
        From then on `began_micros` is when the soak begins, to which the market's times refer.
        Raises SubstrateError.
        """
        await begin.wait()
        changes: list[Coroutine[Any, Any, None]] = [
            self._fail(fault, show) for fault in self.settings.faults
        ]
        if self.settings.bigfleet.joining_shards:
            changes.append(self._join(self.settings.bigfleet.joining_shards.at_seconds, show))
        if self.settings.bigfleet.leaving_shard:
            changes.append(self._leave(self.settings.bigfleet.leaving_shard, show))
        if self.market != NO_CHANGES:
            self.played_market = PlayedMarket(self.market, began_micros())
            write_market(self.played_market, self.market_file)
            changes += [self._interrupt(each, show) for each in self.market.interruptions]
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

    async def _interrupt(self, cut: Interruption, show: Callable[[str], None]) -> None:
        left_micros = self.played_market.at_micros(cut.seconds) - now_micros()
        await asyncio.sleep(max(0.0, left_micros / 1e6))
        show(f"{cut.kind} is interrupted")
        await act_on_notice(self.clusters, cut.kind, cut.notice_seconds)

    async def _join(self, at_seconds: float, show: Callable[[str], None]) -> None:
        await asyncio.sleep(at_seconds)
        for name in self.settings.bigfleet.shard_names[self.settings.bigfleet.shards :]:
            self.on_joined(await self.substrate.start_role(self.specs[name]))
            self.joined.append(name)
            show(f"{name} has joined")

    async def _leave(self, leaving: LeavingShard, show: Callable[[str], None]) -> None:
        """Remove a shard, and wait until it has released everything; its process goes on, as its
        metrics are read at the end.
        """
        await asyncio.sleep(leaving.at_seconds)
        show(f"{leaving.shard} is removed")
        identity = self.substrate.identity(Principal("admin"))
        await remove_shard(self.coordinators, identity, leaving.shard)
        self.left.append(leaving.shard)
        show(f"{leaving.shard} has left")


def make_fleet_changes(
    substrate: Substrate,
    source: NodeSource,
    clusters: Sequence[Cluster],
    roles: Iterable[Endpoint],
    on_joined: Callable[[Endpoint], None],
) -> FleetChanges | None:
    """The changes of a run with these `roles`; None if the profile has none. Raises SubstrateError
    if the substrate cannot make them.
    """
    if not isinstance(source, FleetNodeSource):
        return None
    settings = source.inputs.profile.settings
    if not settings.live_changes:
        return None
    if not isinstance(substrate, KillingSubstrate):
        raise SubstrateError(f"{settings.live_changes} needs --substrate local")
    return FleetChanges(
        settings,
        substrate,
        source.specs,
        on_joined,
        coordinators_of(roles),
        source.inputs.market,
        market_of(source.scratch),
        clusters,
    )
