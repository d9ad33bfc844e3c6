"""Providers that violate one rule each, derived from the conforming example."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from tests.conformance.example import load

example: Any = load()


class LosesIdempotency(example.Provider):  # type: ignore[misc]
    """Returns a new operation id for a repeated call."""

    def accept(self, order: str, request: Any) -> wire.TransitionAck:
        ack: wire.TransitionAck = super().accept(order, request)
        return wire.TransitionAck(operation_id=secrets.token_hex(4), machine=ack.machine)


class TrustsOldEpochs(example.Store):  # type: ignore[misc]
    """Ignores older epochs."""

    def advance(self, order: Any) -> None:
        query = "SELECT max(epoch) FROM mark WHERE shard = ? AND id = ?"
        whose = (order.shard_id, order.machine_id)
        newest = self.db.execute(query, whose).fetchone()[0]
        if newest is None or order.shard_epoch >= newest:
            super().advance(order)


class DropsMetadata(example.Provider):  # type: ignore[misc]
    """Drops the metadata of Configure."""

    def accept(self, order: str, request: Any) -> wire.TransitionAck:
        if order == "Configure":
            request.ClearField("shard_metadata")
        ack: wire.TransitionAck = super().accept(order, request)
        return ack


class DropsPurpose(example.Provider):  # type: ignore[misc]
    """Drops the metadata of Create."""

    def accept(self, order: str, request: Any) -> wire.TransitionAck:
        if order == "Create":
            request.ClearField("shard_metadata")
        ack: wire.TransitionAck = super().accept(order, request)
        return ack


class MixesMetadata(example.Provider):  # type: ignore[misc]
    """Merges the metadata of Configure into that of Create."""

    def accept(self, order: str, request: Any) -> wire.TransitionAck:
        if order == "Configure":
            machine, *_ = self.store.get(request.machine_id)
            request.shard_metadata.update(machine.shard_metadata)
        ack: wire.TransitionAck = super().accept(order, request)
        return ack


class ForgetsTaints(example.Provider):  # type: ignore[misc]
    """Lists no taints of CONFIGURED machines."""

    def select(self, ask: wire.ListFilter) -> wire.MachineList:
        answer: wire.MachineList = super().select(ask)
        for machine in answer.machines:
            if machine.state == wire.CONFIGURED:
                machine.ClearField("taints")
        return answer


class JoinsUntainted(example.Shop):  # type: ignore[misc]
    """Lists taints that its Nodes do not have."""

    async def boot(self, machine: wire.Machine, blob: bytes) -> None:
        plain = wire.Machine()
        plain.CopyFrom(machine)
        plain.ClearField("taints")
        await super().boot(plain, blob)


def _waiting(order: str) -> Callable[..., Any]:
    async def call(self: Any, request: Any, context: Any) -> Any:
        answer = await getattr(example.Provider, order)(self, request, context)
        await asyncio.gather(*self.tasks)
        return answer

    return call


class Blocks(example.Provider):  # type: ignore[misc]
    """Returns from a call when the operation is done."""

    Create, Configure, Drain, Delete = (_waiting(order) for order in example.ORDERS)


class SaysConfiguredAtOnce(example.Shop):  # type: ignore[misc]
    """Registers the Node and does not wait until it is Ready."""

    async def boot(self, machine: wire.Machine, blob: bytes) -> None:
        booting = asyncio.create_task(super().boot(machine, blob))
        await asyncio.wait([booting], timeout=0.2)
        booting.cancel()
        await asyncio.wait([booting])


class HidesOperationsInProgress(example.Provider):  # type: ignore[misc]
    """Omits machines with an operation in progress from listings."""

    def select(self, ask: wire.ListFilter) -> wire.MachineList:
        answer: wire.MachineList = super().select(ask)
        stable = [machine for machine in answer.machines if machine.state not in example.ENDS]
        answer.ClearField("machines")
        answer.machines.extend(stable)
        return answer


class SkipsChanges(example.Provider):  # type: ignore[misc]
    """Numbers its pages' machines by id and says that the last page is as new as it is itself."""

    def select(self, ask: wire.ListFilter) -> wire.MachineList:
        if not ask.max_results or b"no such page" in ask.page_token:
            return super().select(ask)  # type: ignore[no-any-return]
        after = ask.page_token.decode()
        left = sorted((m for _, m in self.store.machines() if m.id > after), key=lambda m: m.id)
        page = left[: ask.max_results]
        more = page[-1].id.encode() if len(page) < len(left) else b""
        revision = str(self.store.revision).encode()
        return wire.MachineList(machines=page, revision=revision, next_page_token=more)


class CutsWithoutSaying(example.Provider):  # type: ignore[misc]
    """Limits its answers and names no next page."""

    def select(self, ask: wire.ListFilter) -> wire.MachineList:
        answer: wire.MachineList = super().select(ask)
        answer.ClearField("next_page_token")
        return answer


class ConfiguresBoundMachines(example.Provider):  # type: ignore[misc]
    """Takes a machine from its cluster for whoever asks."""

    def accept(self, order: str, request: Any) -> wire.TransitionAck:
        machine, operation, *_ = self.store.get(request.machine_id)
        elsewhere = getattr(request, "cluster_id", machine.cluster) != machine.cluster
        if machine.state != wire.CONFIGURED or not elsewhere:
            ack: wire.TransitionAck = super().accept(order, request)
            return ack
        self.store.advance(request)
        machine.cluster = request.cluster_id
        self.store.save(machine, operation, b"", 0)
        return wire.TransitionAck(operation_id=operation, machine=machine)


class NeverDelivers(example.Shop):  # type: ignore[misc]
    """Takes the order and the money."""

    async def buy(self, machine: wire.Machine) -> str:  # noqa: ARG002
        await asyncio.Event().wait()
        raise AssertionError("waits for ever")


class ForgetsEpochs(TrustsOldEpochs):
    """Knows sequences on disk, and which epoch is the newest only until it dies."""

    restarted = False

    def advance(self, order: Any) -> None:
        (TrustsOldEpochs if self.restarted else example.Store).advance(self, order)


class SaysAnything(example.Provider):  # type: ignore[misc]
    """Refuses in words that no report can carry as they are."""

    def accept(self, order: str, request: Any) -> wire.TransitionAck:  # noqa: ARG002
        raise example.Refused("INTERNAL", "\x00 \x1b[31m ]]> <é>\n\ufffe")


class ForgetsHosts(example.Shop):  # type: ignore[misc]
    """Knows what it rents out only as long as nobody has it."""

    async def boot(self, machine: wire.Machine, blob: bytes) -> None:
        await super().boot(machine, blob)
        machine.ClearField("host")


@dataclass(frozen=True)
class ProviderParts:
    """What a provider is made of, and the one check that must find its fault."""

    check: str
    provider: Any = example.Provider
    shop: Any = example.Shop
    store: Any = example.Store


CONFORMING = ProviderParts("")
FAULTS: Mapping[str, ProviderParts] = {
    "lost idempotency": ProviderParts("retry/same-operation", provider=LosesIdempotency),
    "stale epoch accepted": ProviderParts("fence/stale-epoch", store=TrustsOldEpochs),
    "metadata dropped": ProviderParts("metadata/echoed", provider=DropsMetadata),
    "purpose dropped": ProviderParts("metadata/of-create", provider=DropsPurpose),
    "purpose kept too long": ProviderParts("metadata/of-create", provider=MixesMetadata),
    "taints forgotten": ProviderParts("taints/kept", provider=ForgetsTaints),
    "Nodes without taints": ProviderParts("taints/kept", shop=JoinsUntainted),
    "blocking calls": ProviderParts("latency/orders-return-immediately", provider=Blocks),
    "Configured before Ready": ProviderParts(
        "configured/only-when-ready", shop=SaysConfiguredAtOnce
    ),
    "orders under way hidden": ProviderParts(
        "list/in-progress", provider=HidesOperationsInProgress
    ),
    "changes between pages lost": ProviderParts("list/pages", provider=SkipsChanges),
    "cut without a next page": ProviderParts("list/pages", provider=CutsWithoutSaying),
    "at work without a host": ProviderParts("lifecycle/full", shop=ForgetsHosts),
    "bound machines taken": ProviderParts(
        "lifecycle/forbidden-orders", provider=ConfiguresBoundMachines
    ),
}
