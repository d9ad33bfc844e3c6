"""The contract of provider adapters, tested in memory and over gRPC."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from bigfleet.adapters.host.instant import InstantHost
from bigfleet.adapters.provider.grpc import GrpcProvider
from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.model.errors import Fenced, IllegalTransition, Unavailable, UnknownObject
from bigfleet.model.machine import CapacityType, Machine, MachineState
from bigfleet.model.need import Taint
from bigfleet.ports.provider import CapacityProvider, Fence, Listing, Unchanged, nothing_known
from bigfleet.services.provider.config import ProviderConfig
from bigfleet.services.provider.role import serving
from tests.support.listed import listed
from tests.support.listing_provider import list_handler, listing_provider

MACHINES = ("m-1", "m-2")
SLOW = Taint("example.com/slow", "yes", "NoSchedule")
_S = MachineState


def fence(sequence: int, epoch: int = 1) -> Fence:
    return Fence("shard-0", epoch, sequence)


def in_memory() -> MemoryProvider:
    units = {"cpu": 4000, "memory": 2**20}
    return MemoryProvider(
        (
            replace(
                Machine(i, _S.SPECULATIVE, "m6i", "a", CapacityType.SPOT, 0.1, 0.0, units, units),
                taints=(SLOW,),
            )
            for i in MACHINES
        ),
        auto_finish=True,
    )


def served(folder: Path) -> ProviderConfig:
    line = {
        "state": "SPECULATIVE",
        "instance_type": "m6i",
        "zone": "a",
        "capacity_type": "SPOT",
        "price_per_hour": 0.1,
        "interruption_probability": 0.0,
        "resources": {"cpu": "4", "memory": "1Gi", "pods": "110"},
        "taints": [{"key": SLOW.key, "value": SLOW.value, "effect": SLOW.effect}],
    }
    inventory = folder / "inventory.jsonl"
    inventory.write_text("".join(json.dumps({"id": i, **line}) + "\n" for i in MACHINES))
    return ProviderConfig(0, 0, folder / "state", inventory, None)


@pytest.fixture(params=["in memory", "over gRPC"])
async def provider(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[CapacityProvider]:
    async with AsyncExitStack() as closing:
        if request.param == "in memory":
            yield in_memory()
            return
        server = await closing.enter_async_context(serving(served(tmp_path), InstantHost()))
        adapter = GrpcProvider(f"127.0.0.1:{server.port}")
        closing.push_async_callback(adapter.close)
        yield adapter


async def page(
    provider: CapacityProvider, since_revision: bytes = b"", unchanged: Unchanged = nothing_known
) -> Listing:
    """The only page of a listing."""
    [found] = [each async for each in provider.list(since_revision, unchanged)]
    return found


async def becomes(provider: CapacityProvider, state: MachineState) -> Machine:
    """Machine m-1 once it is in `state`."""
    async with asyncio.timeout(60):
        while True:
            found = next(m for m in await listed(provider) if m.id == "m-1")
            if found.state is state:
                return found
            await asyncio.sleep(0.01)


async def test_a_machine_passes_through_its_lifecycle(provider: CapacityProvider) -> None:
    """Create, configure, drain, delete return at once, and the listing shows their completion."""
    purpose = {"bigfleet.lucy.sh/assigned-cluster": "east"}
    ordered = (await provider.create("m-1", purpose, fence(1))).machine
    assert (ordered.id, ordered.shard_metadata) == ("m-1", purpose)
    idle = await becomes(provider, _S.IDLE)
    assert idle.host
    assert (idle.cluster, idle.shard_metadata) == ("", purpose)
    metadata = {"bigfleet.lucy.sh/assigned-priority": "7", "others/key": "kept"}
    await provider.configure("m-1", "east", b"blob", metadata, fence(2))
    bound = await becomes(provider, _S.CONFIGURED)
    assert (bound.cluster, bound.shard_metadata) == ("east", metadata)
    assert idle.taints == bound.taints == (SLOW,)
    await provider.drain("m-1", 0, fence(3))
    freed = await becomes(provider, _S.IDLE)
    assert (freed.cluster, dict(freed.shard_metadata)) == ("", {})
    await provider.delete("m-1", fence(4))
    assert (await becomes(provider, _S.SPECULATIVE)).host == ""


async def test_a_repeated_call_returns_the_same_operation(provider: CapacityProvider) -> None:
    """Also if the operation is in progress or done."""
    await provider.create("m-1", {}, fence(1))
    await becomes(provider, _S.IDLE)
    first = await provider.configure("m-1", "east", b"blob", {}, fence(2))
    again = await provider.configure("m-1", "east", b"blob", {}, fence(3))
    assert again.id == first.id


async def test_a_call_that_is_not_newer_is_fenced(provider: CapacityProvider) -> None:
    """An equal or older sequence and an older epoch are rejected; a new epoch restarts them."""
    await provider.create("m-1", {}, fence(5, epoch=2))
    for stale in (fence(5, epoch=2), fence(4, epoch=2), fence(9, epoch=1)):
        with pytest.raises(Fenced):
            await provider.create("m-1", {}, stale)
    await provider.create("m-1", {}, fence(1, epoch=3))
    await provider.create("m-2", {}, fence(1, epoch=1))


async def test_an_unknown_machine_is_named(provider: CapacityProvider) -> None:
    """Calls for an unknown machine name it in the error."""
    with pytest.raises(UnknownObject, match="m-9"):
        await provider.create("m-9", {}, fence(1))
    with pytest.raises(UnknownObject, match="m-9"):
        await provider.get("m-9")


async def test_a_forbidden_call_changes_nothing(provider: CapacityProvider) -> None:
    """A drain of an unbound machine names machine and operation and leaves it unchanged."""
    with pytest.raises(IllegalTransition, match="m-1") as error:
        await provider.drain("m-1", 0, fence(1))
    assert "drain" in str(error.value)
    assert (await provider.get("m-1")).state is _S.SPECULATIVE


async def test_a_listing_since_a_revision_has_only_changes(provider: CapacityProvider) -> None:
    """Machines unchanged since the revision are omitted."""
    everything = await page(provider)
    assert sorted(m.id for m in everything.machines) == list(MACHINES)
    assert not (await page(provider, everything.revision)).machines
    await provider.create("m-2", {}, fence(1))
    changed = await page(provider, everything.revision)
    assert [m.id for m in changed.machines] == ["m-2"]
    assert changed.rejected == {}


async def test_a_silent_provider_is_unavailable() -> None:
    """The outcome is unknown, and the address is named."""
    adapter = GrpcProvider("127.0.0.1:1")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        await listed(adapter)
    with pytest.raises(Unavailable):
        await adapter.create("m-1", {}, fence(1))
    await adapter.close()


async def test_the_next_page_is_asked_for_before_a_page_is_consumed() -> None:
    """So the provider prepares it meanwhile, even where nothing else runs until then."""
    asked = [threading.Event(), threading.Event()]

    def answer(request: wire.ListFilter, _: object) -> wire.MachineList:
        page = int(request.page_token or b"0")
        asked[page].set()
        return wire.MachineList(next_page_token=b"" if page else b"1")

    server = grpc.server(ThreadPoolExecutor(1))  # in threads of its own
    server.add_generic_rpc_handlers((list_handler(answer),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    adapter = GrpcProvider(f"127.0.0.1:{port}")
    try:
        async with aclosing(adapter.list()) as pages:
            await anext(pages)
            assert asked[1].wait(30)  # the event loop stands still
    finally:
        await adapter.close()
        server.stop(None)


async def test_records_whose_labels_come_in_another_order_are_equal() -> None:
    """Go's protobuf orders the entries of a map at random."""
    head = wire.Machine(id="m-1", state=wire.IDLE, capacity_type=wire.SPOT).SerializeToString()
    labels = [wire.Machine(labels={name: "x"}).SerializeToString() for name in "abcdefgh"]
    answers = [_list_of(head + b"".join(order)) for order in (labels, labels[::-1])]
    assert answers[0] != answers[1]
    known: set[int] = set()

    async def answer(_: object, __: object) -> bytes:
        return answers.pop()

    def unchanged(ids: Sequence[str], digests: Sequence[int]) -> list[str]:
        found = [name for name, each in zip(ids, digests, strict=True) if each in known]
        known.update(digests)
        return found

    async with listing_provider(answer) as address:
        adapter = GrpcProvider(address)
        first = await page(adapter, unchanged=unchanged)
        second = await page(adapter, unchanged=unchanged)
        await adapter.close()
    assert [machine.id for machine in first.machines] == ["m-1"]
    assert (list(second.machines), set(second.unchanged)) == ([], {"m-1"})


async def test_a_provider_that_only_its_hosts_name_is_known_though_no_record_is_read() -> None:
    """After a restart all records may be as they were; quotas and Nodes go by its name."""
    host = wire.HostRef(provider="metal", ref="h-1")
    records = [wire.Machine(id="m-1"), wire.Machine(id="m-2", host=host)]

    async def answer(_: object, __: object) -> wire.MachineList:
        return wire.MachineList(machines=records)

    async with listing_provider(answer) as address:
        adapter = GrpcProvider(address)
        found = await page(adapter, unchanged=lambda ids, _: ids)
        await adapter.close()
    assert (found.provider_name, set(found.unchanged)) == ("metal", {"m-1", "m-2"})


def _list_of(record: bytes) -> bytes:
    """A MachineList with this record, whose encoding is kept."""
    return bytes([0x0A, len(record)]) + record
