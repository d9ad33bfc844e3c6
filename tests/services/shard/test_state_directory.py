"""What a shard keeps on its disk: one process at a time, and no disk that fills up ends it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.adapters.store.eviction_file import EvictionFile
from bigfleet.api import transport
from bigfleet.api.journal import JournalEvent
from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.api.v1alpha1.shard_pb2_grpc import ShardStub
from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import MachineState
from bigfleet.services.provider.config import Latencies, ProviderConfig
from bigfleet.services.provider.role import host_for, serving
from bigfleet.services.shard.records.journal import JournalLimits
from tests.support.full_disk import full_disk
from tests.support.shard_process import decides, shard_process
from tests.support.shard_rig import FakeOperator, cycles, machine, need, shard
from tests.support.waiting import eventually

_S = MachineState


def _provider(folder: Path) -> ProviderConfig:
    line = {
        "id": "m-1",
        "state": "IDLE",
        "instance_type": "m6i.large",
        "zone": "a",
        "capacity_type": "BARE_METAL",
        "price_per_hour": 0.1,
        "interruption_probability": 0,
        "resources": {"cpu": "4", "memory": "8Gi", "pods": "110"},
    }
    (folder / "inventory.jsonl").write_text(json.dumps(line) + "\n")
    return ProviderConfig(
        listen_port=0,
        observe_port=0,
        state_directory=folder / "provider",
        inventory_file=folder / "inventory.jsonl",
        host_kubeconfigs=None,
        latencies=Latencies(),
    )


async def test_a_second_process_on_a_directory_is_refused_and_names_the_first(
    tmp_path: Path,
) -> None:
    """Both would be given the same epoch, and no provider could tell one's orders from the other's.

    A process that was killed holds nothing.
    """
    given, state = _provider(tmp_path), tmp_path / "shard"
    async with serving(given, host_for(given)) as provider:
        address = f"127.0.0.1:{provider.port}"
        async with shard_process(address, state) as first:
            await decides(first)
            async with shard_process(address, state) as second:
                assert await asyncio.wait_for(second.process.wait(), 60) != 0
            said = (state / "shard.log").read_text()
            assert f"in use by shard shard-0, process {first.process.pid} on " in said
            assert (state / "epoch").read_text() == "1\n"
            await decides(first, 3)
            await first.kill()
        async with shard_process(address, state) as next_one:
            await decides(next_one)
            assert (state / "epoch").read_text() == "2\n"


async def test_a_second_shard_is_refused_before_it_touches_anything(tmp_path: Path) -> None:
    async with shard(MemoryProvider([machine("m-1")]), tmp_path):
        before = (tmp_path / "epoch").read_text()
        with pytest.raises(InvalidInput, match=r"in use by shard shard-0, process \d+ on "):
            async with shard(MemoryProvider(), tmp_path):
                pass
        assert (tmp_path / "epoch").read_text() == before


async def test_a_full_disk_under_the_journal_ends_nothing(tmp_path: Path) -> None:
    """The shard decides and orders on, and what it told meanwhile is written once there is room."""
    given, state = _provider(tmp_path), tmp_path / "shard"
    journal = tmp_path / "journal.jsonl"
    more = ("--journal", str(journal), "--cycle", "0.2")
    async with (
        serving(given, host_for(given)) as provider,
        shard_process(f"127.0.0.1:{provider.port}", state, *more) as alive,
        transport.channel(alive.address) as channel,
    ):
        await decides(alive)
        operator = FakeOperator(ShardStub(channel).Session(None), "east", helpful=True)
        await operator.say(hello=shard_pb2.Hello(cluster_id="east"))
        before = journal.read_bytes()
        with full_disk(alive.process.pid):
            await operator.roll_up(need(machines=0.5))
            await operator.receives_state("m-1", _S.CONFIGURED)
            assert journal.read_bytes() == before
        async with asyncio.timeout(120):
            while b"CONFIGURED" not in journal.read_bytes():
                assert alive.process.returncode is None
                await asyncio.sleep(0.05)
        await operator.leave()
    story = [json.loads(line) for line in journal.read_text().splitlines()]
    events = [line["event"] for line in story if line.get("machine") == "m-1"]
    assert events[:2] == ["decided", "bootstrap-requested"], "and nothing of it is missing"


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
async def test_a_journal_that_can_never_be_written_is_no_reason_to_stop(tmp_path: Path) -> None:
    provider = MemoryProvider([machine("m-1")], auto_finish=True)
    async with shard(provider, tmp_path, journal=Path("/dev/full")) as rig:
        operator = await rig.operator()
        await operator.roll_up(need())
        await operator.receives_state("m-1", _S.CONFIGURED)
        await cycles(rig, 3)


async def test_a_journal_keeps_to_its_sizes(tmp_path: Path) -> None:
    """It is put aside before it outgrows its size, and only so many are kept; no line is cut."""
    provider = MemoryProvider([machine("m-1")])
    sizes = JournalLimits(max_bytes=2_000, kept=2)
    async with shard(provider, tmp_path, journal_limits=sizes) as rig:
        for number in range(200):
            rig.shard.cycle.journal.note(JournalEvent.STATE, machine="m-2", note=f"{number}")
            rig.shard.cycle.journal.flush()
    files = [tmp_path / f"journal.jsonl{suffix}" for suffix in ("", ".1", ".2")]
    assert not (tmp_path / "journal.jsonl.3").exists()
    assert all(file.stat().st_size <= 2_000 for file in files)
    newest_last = [files[2], files[1], files[0]]
    lines = [json.loads(line) for file in newest_last for line in file.read_text().splitlines()]
    numbers = [int(line["note"]) for line in lines if line.get("machine") == "m-2"]
    assert numbers == [*range(numbers[0], 200)]


async def test_an_eviction_whose_end_was_lost_leaves_the_next_service_alone(
    tmp_path: Path,
) -> None:
    """A full disk took the line that ended it; the machine has been configured anew since then."""
    provider = MemoryProvider([machine("m-1")], auto_finish=True)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(need())
        await operator.receives_state("m-1", _S.CONFIGURED)
        await operator.roll_up()
        await operator.receives(lambda m: m.reclaim_instruction.instruction_id != "")
        begun = (tmp_path / "evictions.jsonl").read_bytes()
        assert b"m-1" in begun
        await operator.receives_state("m-1", _S.IDLE)
        await eventually(lambda: not len(rig.shard.cycle.evictions))
        operator.received.clear()
        await operator.roll_up(need())
        await operator.receives_state("m-1", _S.CONFIGURED)
    (tmp_path / "evictions.jsonl").write_bytes(begun)
    orders = len(provider.orders)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(need())
        await cycles(rig, 5)
        assert not any(m.reclaim_instruction.instruction_id for m in operator.received)
    assert provider.orders[orders:] == []
    assert EvictionFile(tmp_path).load() == []
