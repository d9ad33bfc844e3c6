"""Plays a federation's course: load, a killed API server, a cut line, each at its time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from loaddriver.catalog import Catalog
from loaddriver.federated import founding, objects
from loaddriver.federated.course import Course, Span
from loaddriver.federated.feeder import Feeder
from loaddriver.federated.line import Line
from loaddriver.federated.record import (
    CUT_OFF,
    FEDERATION_DOWN,
    FEDERATION_UP,
    REACHED_AGAIN,
    Event,
    FederationRecord,
)
from loaddriver.substrates.base import Cluster, Endpoint, RoleSpec


class LoneServer(Protocol):
    """An API server that can be made to crash."""

    async def kill(self) -> None: ...

    async def start_again(self) -> None: ...


@runtime_checkable
class Place(Protocol):
    """A substrate that can give a federation an API server of its own."""

    async def start_api_server(self, name: str) -> tuple[Cluster, LoneServer]: ...

    async def start_role(self, role: RoleSpec) -> Endpoint: ...


@dataclass
class Federating:
    """One federation, from `found` to `finish`. `place` keeps private files in `folder`."""

    course: Course
    catalog: Catalog
    place: Place
    folder: Path
    environment: Mapping[str, str]
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._feeder = Feeder(self.course)
        self._lines: dict[str, Line] = {}
        self._stack = AsyncExitStack()
        self._members: Sequence[Cluster] = ()
        self._host: Cluster | None = None
        self._ended_at = 0.0

    async def found(self, members: Sequence[Cluster], say: Callable[[str], None]) -> Endpoint:
        """Start everything and return once every member's HPA scales; the federation's role."""
        say("starting the federation: an API server of its own, members by lines that can be cut")
        self._members = members
        self._host, self._server = await self.place.start_api_server(founding.HOST)
        await founding.prepare_host(self._host)
        joining = founding.Joining(self._host, self.folder, self.environment)
        for member in members:
            line = await self._line_to(member)
            await joining.join(member, line)
        await self._feeder.start({member.name: member for member in members})
        role = await self.place.start_role(founding.ROLE)
        federation = self.course.federation
        archetype = self.catalog.archetype(federation.archetype)
        bodies: dict[str, Any] = {
            objects.DEPLOYMENTS: objects.deployment(archetype, self.catalog),
            objects.AUTOSCALERS: objects.autoscaler(federation),
        }
        await founding.create_objects(self._host, bodies)
        await founding.until_in_force(members, say)
        return role

    async def play(self, begin: asyncio.Event, show: Callable[[str], None]) -> None:
        """Once the soak has begun, all phases; after them only the load goes on, for ever."""
        await begin.wait()
        self._feeder.began_at = began = time.time()
        for span in self.course.spans:
            show(span.name)
            await self._enter(span)
            await asyncio.sleep(max(0.0, began + span.end - time.time()))
            await self._leave(span)
        self._ended_at = time.time()
        show("")
        await asyncio.Event().wait()

    async def failed(self) -> None:
        """Never returns while all is well; raises what ended the feeding of load."""
        await self._feeder.failed()

    async def finish(self) -> FederationRecord | None:
        """Stop; what was played, None when it did not come to that."""
        await self._feeder.stop()
        await self._stack.aclose()
        began = self._feeder.began_at
        if began is None or self._host is None:
            return None
        logs = {m.name: m.audit_log for m in self._members if m.audit_log is not None}
        assert self._host.audit_log is not None
        return FederationRecord(
            course=self.course,
            began_at=began,
            ended_at=self._ended_at or time.time(),
            samples=self._feeder.samples,
            events=self.events,
            logs=logs,
            host_log=self._host.audit_log,
        )

    async def _line_to(self, member: Cluster) -> Line:
        line = Line(int(member.api_server.rpartition(":")[2]))
        await line.start()
        self._stack.push_async_callback(line.stop)
        self._lines[member.name] = line
        return line

    async def _enter(self, span: Span) -> None:
        if span.federation_down:
            await self._server.kill()
            self._note(FEDERATION_DOWN)
        if span.cut_off is not None:
            self._lines[span.cut_off].cut()
            self._note(CUT_OFF, span.cut_off)

    async def _leave(self, span: Span) -> None:
        if span.federation_down:
            await self._server.start_again()
            self._note(FEDERATION_UP)
        if span.cut_off is not None:
            self._lines[span.cut_off].mend()
            self._note(REACHED_AGAIN, span.cut_off)

    def _note(self, what: str, cluster: str = "") -> None:
        self.events.append(Event(time.time(), what, cluster))
