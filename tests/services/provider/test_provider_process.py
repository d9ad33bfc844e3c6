"""The provider as a process: kill, start and stop."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import aiohttp
import grpc.aio
import pytest

from bigfleet.api import transport
from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.conformance.subject import Subject
from bigfleet.model.errors import InvalidInput, Unavailable
from bigfleet.services.provider.role import run
from tests.support.full_disk import full_disk
from tests.support.ports import free_port
from tests.support.providers import settings, start_process, subject_of, write_inventory

# Only a failing test waits this long; test machines may be slow.
_PATIENCE_SECONDS = 60.0


async def answers(subject: Subject) -> wire.MachineList:
    """The first answer of a starting provider."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        return await subject.stub.List(wire.ListFilter(), wait_for_ready=True)


async def test_operations_under_way_at_a_kill_are_finished_by_the_next_process(
    tmp_path: Path,
) -> None:
    """After SIGKILL: same operation, same fencing tokens, continued revisions, and an end."""
    write_inventory(tmp_path / "inventory.jsonl", {"id": "m-0"}, {"id": "m-1"})
    port = free_port()
    first = await start_process(tmp_path, port, latency_seconds=1.5)
    async with transport.channel(f"127.0.0.1:{port}") as channel:
        subject = subject_of(channel)
        shard = subject.fenced_client()
        before = await answers(subject)
        ack = await shard.create("m-0", sequence=5)
        first.kill()
        await first.wait()
    second = await start_process(tmp_path, port, latency_seconds=0.0)
    try:
        async with transport.channel(f"127.0.0.1:{port}") as channel:
            subject = subject_of(channel)
            await answers(subject)
            shard.stub = subject.stub
            with pytest.raises(Exception, match="is not newer"):
                await shard.create("m-0", sequence=5)
            assert (await shard.create("m-0", sequence=6)).operation_id == ack.operation_id
            await subject.wait_for_state("m-0", wire.IDLE)
            since = wire.ListFilter(since_revision=before.revision)
            changed = await subject.stub.List(since)
            assert [m.id for m in changed.machines] == ["m-0"]
    finally:
        second.kill()
        await second.wait()


async def test_run_serves_until_it_is_stopped_and_closes_cleanly(tmp_path: Path) -> None:
    """Ready while it serves; afterwards the state directory and the ports are free again."""
    port, observe_port = free_port(), free_port()
    given = settings(tmp_path, listen_port=port, observe_port=observe_port)
    for _ in range(2):
        stop = asyncio.Event()
        role = asyncio.create_task(run(given, stop))
        async with transport.channel(f"127.0.0.1:{port}") as channel:
            assert len((await answers(subject_of(channel))).machines) == 4
        async with aiohttp.ClientSession() as web:
            address = f"http://127.0.0.1:{observe_port}"
            async with web.get(f"{address}/readyz") as ready:
                assert ready.status == 200
            async with web.get(f"{address}/metrics") as metrics:
                assert 'bigfleet_provider_machines{state="SPECULATIVE"} 3.0' in (
                    await metrics.text()
                )
        stop.set()
        await asyncio.wait_for(role, _PATIENCE_SECONDS)


async def test_the_inventory_is_read_once(tmp_path: Path) -> None:
    """A store with machines in it is not seeded again, nor is the file needed."""
    given = settings(tmp_path)
    stop = asyncio.Event()
    stop.set()
    await run(given, stop)
    given.inventory_file.unlink()
    await run(given, stop)


async def test_a_bad_inventory_ends_the_start_and_leaves_nothing_locked(tmp_path: Path) -> None:
    """The sentence names line and field; a corrected file starts."""
    given = settings(tmp_path)
    good = given.inventory_file.read_bytes()
    given.inventory_file.write_bytes(good + b'{"id": "m-9"}\n')
    stop = asyncio.Event()
    stop.set()
    with pytest.raises(InvalidInput, match=r"line 5: .*missing required field"):
        await run(given, stop)
    given.inventory_file.write_bytes(good)
    await run(given, stop)


async def test_an_address_in_use_is_named(tmp_path: Path) -> None:
    """The error names the port."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(Unavailable, match=f"cannot listen on 127.0.0.1:{port}"):
            await run(settings(tmp_path, listen_port=port), asyncio.Event())
        with pytest.raises(Unavailable, match=f"health on 127.0.0.1:{port}"):
            await run(settings(tmp_path, observe_port=port), asyncio.Event())


async def test_a_full_disk_delays_operations_and_loses_none(tmp_path: Path) -> None:
    """Reads go on, orders are refused as unavailable, and what ends meanwhile is kept until there
    is room again: a provider that ended instead could not even be asked what runs.
    """
    settings(tmp_path)
    port = free_port()
    process = await start_process(tmp_path, port, latency_seconds=1.0)
    try:
        async with transport.channel(f"127.0.0.1:{port}") as channel:
            subject = subject_of(channel)
            await answers(subject)
            shard = subject.fenced_client()
            await shard.create("m-0")
            with full_disk(process.pid):
                with pytest.raises(grpc.aio.AioRpcError, match="cannot be written"):
                    await shard.create("m-1")
                await asyncio.sleep(2.5)
                assert process.returncode is None
                assert (await subject.get("m-0")).state == wire.CREATING
            await subject.wait_for_state("m-0", wire.IDLE)
    finally:
        process.kill()
        await process.wait()
