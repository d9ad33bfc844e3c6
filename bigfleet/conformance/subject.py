"""The provider under test as checks see it: machines to try things on, and waiting for states."""

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
# One check takes two at once.
MACHINES_NEEDED = 2
_POLL_INTERVAL_SECONDS = 0.02
_UNAUTHORIZED_CODES = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)


@dataclass(frozen=True)
class Bounds:
    """Time limits for a provider, in seconds. `restart`: until it serves again after a restart."""

    answer: Annotated[
        float, Flag("--answer-seconds", "time limit of a call that starts an operation", "SECONDS")
    ] = 1.0
    state: Annotated[
        float, Flag("--state-seconds", "until an operation reaches its final state", "SECONDS")
    ] = 10.0
    drain: Annotated[
        float, Flag("--drain-seconds", "until a drain ends after its grace period", "SECONDS")
    ] = 30.0
    restart: float = 60.0


@dataclass
class Subject:
    """The provider behind `stub`, and the cluster that its machines join.

    `restart` kills and starts it; None where nobody said how. `used` are the machines that checks
    have tried things on.
    """

    stub: CapacityProviderAsyncStub
    cluster: Cluster
    bounds: Bounds
    restart: Callable[[], Awaitable[None]] | None = None
    used: set[str] = field(default_factory=set)

    def fenced_client(self) -> FencedClient:
        """A shard that the provider has not heard of."""
        return FencedClient(self.stub)

    async def get(self, machine: str) -> wire.Machine:
        """The machine now."""
        call = self.stub.Get(wire.MachineRef(id=machine), timeout=CALL_TIMEOUT_SECONDS)
        return await with_note(f"Get of {machine}", call)

    async def listed(self, **selection: object) -> wire.MachineList:
        """What a List with these fields answers."""
        request = wire.ListFilter(**selection)  # type: ignore[arg-type]
        return await with_note("List", self.stub.List(request, timeout=CALL_TIMEOUT_SECONDS))

    async def speculative(self) -> list[str]:
        """The ids of the machines that checks may use, the cheapest first: they are paid for."""
        listed = await self.listed(states=[wire.SPECULATIVE])
        elastic = [m for m in listed.machines if m.capacity_type in ELASTIC]
        return [m.id for m in sorted(elastic, key=lambda m: (m.price_per_hour, m.id))]

    async def require_machines(self) -> int:
        """How many machines there are to use; InvalidInput when they are too few."""
        found = len(await self.speculative())
        if found < MACHINES_NEEDED:
            hint = (
                f"are too few: the suite needs {MACHINES_NEEDED} machines that are SPECULATIVE and "
                "ON_DEMAND or SPOT, which it buys and gives back; seed them"
            )
            raise InvalidInput("provider: machines to use", found, hint)
        return found

    async def require_authorization(self) -> None:
        """InvalidInput when orders are refused for who gives them, whatever they are."""
        try:
            await self.fenced_client().drain(UNKNOWN_MACHINE)
        except grpc.aio.AioRpcError as error:
            if error.code() in _UNAUTHORIZED_CODES:
                hint = "keeps the suite from giving orders as several shards: use an admin's"
                raise InvalidInput("--identity", error.details(), hint) from None

    async def leftover_machines(self) -> Mapping[str, str]:
        """The states of machines that were used and are not for sale again, by id."""
        listed = (await self.listed()).machines
        bought = [m for m in listed if m.id in self.used and m.state != wire.SPECULATIVE]
        return {machine.id: state_name(machine.state) for machine in bought}

    async def wait_for_state(
        self, machine: str, *states: int, within: float | None = None
    ) -> wire.Machine:
        """The machine once it is in one of `states`; Broken when that takes longer than allowed."""
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
        """The order to join the cluster."""
        blob = self.cluster.blob(machine)
        return await fenced_client.configure(machine, self.cluster.id, blob, metadata)

    async def configured(self, fenced_client: FencedClient, machine: str) -> wire.Machine:
        """The IDLE machine taken to CONFIGURED."""
        await self.configure(fenced_client, machine)
        return await self.wait_for_state(machine, wire.CONFIGURED)

    async def drained(self, fenced_client: FencedClient, machine: str) -> wire.Machine:
        """The CONFIGURED machine taken to IDLE, its Node deleted first as an operator does."""
        await self.cluster.remove(machine)
        await fenced_client.drain(machine, grace_seconds=0)
        return await self.wait_for_state(machine, wire.IDLE, within=self.bounds.drain)

    @asynccontextmanager
    async def joining(self, fenced_client: FencedClient, machine: str) -> AsyncIterator[None]:
        """The IDLE machine while it is ordered to join the cluster and cannot yet; then it can.

        The order is not waited for before: a provider that blocks is one check's finding.
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
        """A SPECULATIVE machine, given back so; `number` tells those used together apart."""
        ids = await self.speculative()
        expect(len(ids) > number, f"no SPECULATIVE machine is left: {ids}; were all given back?")
        async with self.using(ids[number]) as machine:
            yield machine

    @asynccontextmanager
    async def using(self, machine: str) -> AsyncIterator[str]:
        """This SPECULATIVE machine, given back so."""
        self.used.add(machine)
        try:
            yield machine
        except BaseException:
            # What was found first is the finding; `leftover_machines` tells what this could not
            # mend.
            with suppress(RuleViolation, grpc.aio.AioRpcError):
                await self._release(machine)
            raise
        await self._release(machine)

    @asynccontextmanager
    async def idle(self, fenced_client: FencedClient) -> AsyncIterator[str]:
        """A machine that is IDLE."""
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
    """A state as people know it."""
    try:
        return wire.MachineState.Name(wire.MachineState.ValueType(state))
    except ValueError:
        return f"state {state}"
