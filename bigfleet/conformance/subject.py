"""The provider under test: machines for checks to use, and waiting for their states."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import grpc
import grpc.aio

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.conformance.cluster import Cluster
from bigfleet.conformance.expectations import RuleViolation, expect
from bigfleet.conformance.fenced_client import CALL_TIMEOUT_SECONDS, FencedClient, with_note
from bigfleet.flags import Flag
from bigfleet.model.errors import InvalidInput

if TYPE_CHECKING:  # only the type stubs know it
    from bigfleet.api.v1alpha1.provider_pb2_grpc import CapacityProviderAsyncStub

ELASTIC = (wire.ON_DEMAND, wire.SPOT)
STABLE_STATES = (wire.SPECULATIVE, wire.IDLE, wire.CONFIGURED, wire.FAILED)
UNKNOWN_MACHINE = "conformance-no-such-machine"
# One check uses two at once.
MACHINES_NEEDED = 2
_POLL_INTERVAL_SECONDS = 0.02
_UNAUTHORIZED_CODES = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)


@dataclass(frozen=True)
class Bounds:
    """Time limits for a provider, in seconds."""

    answer: Annotated[
        float, Flag("--answer-seconds", "time limit of a call that starts an operation", "SECONDS")
    ] = 1.0
    state: Annotated[
        float, Flag("--state-seconds", "until an operation reaches its final state", "SECONDS")
    ] = 10.0
    drain: Annotated[
        float, Flag("--drain-seconds", "until a drain ends after its grace period", "SECONDS")
    ] = 30.0


@dataclass
class Subject:
    """The provider behind `stub`, and the cluster that its machines join.

    `restart` kills and starts it; None if that is not configured. `used` are the machines that
    checks have used.
    """

    stub: CapacityProviderAsyncStub
    cluster: Cluster
    bounds: Bounds
    restart: Callable[[], Awaitable[None]] | None = None
    used: set[str] = field(default_factory=set)

    def fenced_client(self) -> FencedClient:
        """A client with a new shard id."""
        return FencedClient(self.stub)

    async def get(self, machine: str) -> wire.Machine:
        """The machine's current record."""
        call = self.stub.Get(wire.MachineRef(id=machine), timeout=CALL_TIMEOUT_SECONDS)
        return await with_note(f"Get of {machine}", call)

    async def listed(self, **selection: object) -> wire.MachineList:
        """The response to a List with these fields."""
        request = wire.ListFilter(**selection)  # type: ignore[arg-type]
        return await with_note("List", self.stub.List(request, timeout=CALL_TIMEOUT_SECONDS))

    async def speculative(self) -> list[str]:
        """The ids of the machines that checks may use, cheapest first, as they are billed."""
        listed = await self.listed(states=[wire.SPECULATIVE])
        elastic = [m for m in listed.machines if m.capacity_type in ELASTIC]
        return [m.id for m in sorted(elastic, key=lambda m: (m.price_per_hour, m.id))]

    async def require_machines(self) -> int:
        """The number of machines to use; InvalidInput if there are too few."""
        found = len(await self.speculative())
        if found < MACHINES_NEEDED:
            hint = (
                f"are too few: the suite needs {MACHINES_NEEDED} machines that are SPECULATIVE and "
                "ON_DEMAND or SPOT, which it creates and deletes"
            )
            raise InvalidInput("provider: machines to use", found, hint)
        return found

    async def require_authorization(self) -> None:
        """InvalidInput if the suite is not authorized to call the provider as a shard."""
        try:
            await self.fenced_client().drain(UNKNOWN_MACHINE)
        except grpc.aio.AioRpcError as error:
            if error.code() in _UNAUTHORIZED_CODES:
                hint = "does not allow the suite to act as several shards: use an admin's"
                raise InvalidInput("--identity", error.details(), hint) from None

    async def leftover_machines(self) -> Mapping[str, str]:
        """The states of machines that were used and are not SPECULATIVE again, by id."""
        listed = (await self.listed()).machines
        bought = [m for m in listed if m.id in self.used and m.state != wire.SPECULATIVE]
        return {machine.id: state_name(machine.state) for machine in bought}

    async def wait_for_state(
        self, machine: str, *states: int, within: float | None = None
    ) -> wire.Machine:
        """The machine once it is in one of `states`; RuleViolation after the time limit."""
        bound = self.bounds.state if within is None else within
        now = await self.get(machine)
        try:
            async with asyncio.timeout(bound):
                while now.state not in states:
                    await asyncio.sleep(_POLL_INTERVAL_SECONDS)
                    now = await self.get(machine)
        except TimeoutError:
            wanted = " or ".join(state_name(state) for state in states)
            more = f", last_error {now.last_error!r}" if now.last_error else ""
            seen = f"{machine} is {state_name(now.state)} and not {wanted} after {bound:g} s{more}"
            raise RuleViolation(seen) from None
        return now

    async def configure(
        self, fenced_client: FencedClient, machine: str, metadata: Mapping[str, str] | None = None
    ) -> wire.TransitionAck:
        """Configure the machine to join the cluster."""
        blob = self.cluster.blob(machine)
        return await fenced_client.configure(machine, self.cluster.id, blob, metadata)

    async def configured(self, fenced_client: FencedClient, machine: str) -> wire.Machine:
        """Bring the IDLE machine to CONFIGURED."""
        await self.configure(fenced_client, machine)
        return await self.wait_for_state(machine, wire.CONFIGURED)

    async def drained(self, fenced_client: FencedClient, machine: str) -> wire.Machine:
        """Bring the CONFIGURED machine to IDLE, its Node deleted first as an operator does."""
        await self.cluster.remove(machine)
        await fenced_client.drain(machine, grace_seconds=0)
        return await self.wait_for_state(machine, wire.IDLE, within=self.bounds.drain)

    @asynccontextmanager
    async def joining(self, fenced_client: FencedClient, machine: str) -> AsyncIterator[None]:
        """A context in which the IDLE machine is joining the cluster and cannot become Ready.

        Configure is not awaited until the end: another check detects a provider that blocks.
        """
        async with self.cluster.readiness_withheld():
            ordered = asyncio.create_task(self.configure(fenced_client, machine))
            try:
                yield
            except BaseException:
                ordered.cancel()
                await asyncio.gather(ordered, return_exceptions=True)
                raise
        await ordered

    @asynccontextmanager
    async def unused(self, number: int = 0) -> AsyncIterator[str]:
        """A SPECULATIVE machine, deleted at the end; `number` distinguishes those used together."""
        ids = await self.speculative()
        expect(len(ids) > number, f"no SPECULATIVE machine is left: {ids}; were all deleted?")
        async with self.using(ids[number]) as machine:
            yield machine

    @asynccontextmanager
    async def using(self, machine: str) -> AsyncIterator[str]:
        """This SPECULATIVE machine, deleted at the end."""
        self.used.add(machine)
        try:
            yield machine
        except BaseException:
            # Report the first error; `leftover_machines` lists what could not be cleaned up.
            with suppress(RuleViolation, grpc.aio.AioRpcError):
                await self._release(machine)
            raise
        await self._release(machine)

    @asynccontextmanager
    async def idle(self, fenced_client: FencedClient) -> AsyncIterator[str]:
        """An IDLE machine, deleted at the end."""
        async with self.unused() as machine:
            await fenced_client.create(machine)
            await self.wait_for_state(machine, wire.IDLE)
            yield machine

    async def _release(self, machine: str) -> None:
        fenced_client = self.fenced_client()
        now = await self.wait_for_state(machine, *STABLE_STATES, within=self.bounds.drain)
        if now.state == wire.CONFIGURED:
            now = await self.drained(fenced_client, machine)
        await self.cluster.remove(machine)
        if now.state != wire.SPECULATIVE:
            await fenced_client.delete(machine)
            await self.wait_for_state(machine, wire.SPECULATIVE)


def state_name(state: int) -> str:
    """The name of a state."""
    try:
        return wire.MachineState.Name(wire.MachineState.ValueType(state))
    except ValueError:
        return f"state {state}"
