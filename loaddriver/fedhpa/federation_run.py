"""Plays a federation's schedule: load, API server outages and partitions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from loaddriver.fedhpa import objects, setup
from loaddriver.fedhpa.load_schedule import LoadSchedule, PhaseWindow
from loaddriver.fedhpa.record import (
    FEDERATION_DOWN,
    FEDERATION_UP,
    PARTITIONED,
    RECONNECTED,
    FaultEvent,
    FederationRecord,
)
from loaddriver.fedhpa.usage import UsageFeeder
from loaddriver.profile.catalog import Catalog
from loaddriver.substrates.base import Cluster, Endpoint, RoleSpec
from loaddriver.substrates.proxy import PartitionableProxy


class ApiServerProcess(Protocol):
    """An API server that can be killed and restarted, as the federation sees it."""

    async def kill(self) -> None: ...

    async def restart(self) -> None: ...


@runtime_checkable
class FederationSubstrate(Protocol):
    """A substrate that can start a separate API server for a federation."""

    async def start_api_server(self, name: str) -> tuple[Cluster, ApiServerProcess]: ...

    async def start_role(self, role: RoleSpec) -> Endpoint: ...


@dataclass
class FederationRun:
    """One federation, from `start` to `finish`. `folder` has its private files."""

    schedule: LoadSchedule
    catalog: Catalog
    substrate: FederationSubstrate
    folder: Path
    environment: Mapping[str, str]
    events: list[FaultEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._feeder = UsageFeeder(self.schedule)
        self._proxies: dict[str, PartitionableProxy] = {}
        self._stack = AsyncExitStack()
        self._members: Sequence[Cluster] = ()
        self._host: Cluster | None = None
        self._ended_at = 0.0

    async def start(self, members: Sequence[Cluster], say: Callable[[str], None]) -> Endpoint:
        """Start everything; return the federation's role once every member's HPA is active."""
        say("starting the federation: its own API server, and members behind proxies")
        self._members = members
        self._host, self._server = await self.substrate.start_api_server(setup.HOST)
        await setup.prepare_host(self._host)
        joiner = setup.MemberJoiner(self._host, self.folder, self.environment)
        for member in members:
            proxy = await self._proxy_to(member)
            await joiner.join(member, proxy)
        await self._feeder.start({member.name: member for member in members})
        role = await self.substrate.start_role(setup.ROLE)
        federation = self.schedule.federation
        archetype = self.catalog.archetype(federation.archetype)
        bodies: dict[str, Any] = {
            objects.DEPLOYMENTS: objects.deployment(archetype, self.catalog),
            objects.AUTOSCALERS: objects.autoscaler(federation),
        }
        await setup.create_objects(self._host, bodies)
        await setup.wait_until_scaling(members, say)
        return role

    async def play(self, begin: asyncio.Event, show: Callable[[str], None]) -> None:
        """Play all phases once the soak has begun; afterwards only the load continues."""
        await begin.wait()
        self._feeder.began_at = began = time.time()
        for window in self.schedule.phase_windows:
            show(window.name)
            await self._enter(window)
            await asyncio.sleep(max(0.0, began + window.end - time.time()))
            await self._leave(window)
        self._ended_at = time.time()
        show("")
        await asyncio.Event().wait()

    async def failed(self) -> None:
        """Wait for the usage feeder to fail and raise its error."""
        await self._feeder.failed()

    async def finish(self) -> FederationRecord | None:
        """Stop and return the record; None if no phase was played."""
        await self._feeder.stop()
        await self._stack.aclose()
        began = self._feeder.began_at
        if began is None or self._host is None:
            return None
        logs = {m.name: m.audit_log for m in self._members if m.audit_log is not None}
        assert self._host.audit_log is not None
        return FederationRecord(
            schedule=self.schedule,
            began_at=began,
            ended_at=self._ended_at or time.time(),
            samples=self._feeder.samples,
            events=self.events,
            logs=logs,
            host_log=self._host.audit_log,
        )

    async def _proxy_to(self, member: Cluster) -> PartitionableProxy:
        proxy = PartitionableProxy(member.api_server)
        await proxy.start()
        self._stack.push_async_callback(proxy.stop)
        self._proxies[member.name] = proxy
        return proxy

    async def _enter(self, window: PhaseWindow) -> None:
        if window.federation_down:
            await self._server.kill()
            self._record_event(FEDERATION_DOWN)
        if window.partitioned is not None:
            self._proxies[window.partitioned].disconnect()
            self._record_event(PARTITIONED, window.partitioned)

    async def _leave(self, window: PhaseWindow) -> None:
        if window.federation_down:
            await self._server.restart()
            self._record_event(FEDERATION_UP)
        if window.partitioned is not None:
            self._proxies[window.partitioned].reconnect()
            self._record_event(RECONNECTED, window.partitioned)

    def _record_event(self, what: str, cluster: str = "") -> None:
        self.events.append(FaultEvent(time.time(), what, cluster))
