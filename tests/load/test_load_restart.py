"""A shard with very many machines is killed and decides again soon, and exactly as before, with
little memory.

LOAD_MACHINES says how many (default 20,000; 100,000 is what is promised).
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from bigfleet.api.v1alpha1 import provider_pb2
from loaddriver.run.process_table import read_memory
from loaddriver.wire.operators import Tally
from loaddriver.wire.provider import InstantProvider, serve
from tests.load.operators import bound_machines, operators_of
from tests.support.many_machines import machines
from tests.support.shard_process import decides, shard_process

pytestmark = [pytest.mark.alone, pytest.mark.timeout(600)]  # it measures

MACHINES = int(os.environ.get("LOAD_MACHINES", "20000"))
OPERATORS = 50
MAX_SECONDS = 10.0
#: of a shard without machines, and of each machine
MAX_MEBIBYTES, MAX_BYTES = 280.0, 400


async def test_a_killed_shard_decides_again_within_ten_seconds(tmp_path: Path) -> None:
    """From the start of its process to the end of its first decision; and no machine is lost,
    doubled or credited twice by the restart: every one stays where it was, for what it was.
    """
    tally = Tally()
    operators = operators_of(OPERATORS, 1.0, tally, fickle=False)
    bound = bound_machines(operators)
    instant = InstantProvider(machines(MACHINES, OPERATORS, bound))
    server, provider = await serve(instant)
    flags = ("--on-demand-hold", "3600", "--reclaim-hold", "0")
    async with shard_process(provider, tmp_path, *flags) as shard:
        await decides(shard)
        await shard.kill()
    started = time.monotonic()
    async with shard_process(provider, tmp_path, *flags) as shard:
        await decides(shard)
        elapsed = time.monotonic() - started
        running = [asyncio.create_task(each.run(shard.address)) for each in operators]
        async with asyncio.timeout(60):
            while tally.sent < 3 * OPERATORS:  # noqa: ASYNC110 - operators have no event for that
                await asyncio.sleep(0.1)
        told = await shard.metrics()
        peak_mebibytes = read_memory(shard.process.pid).peak_bytes / 2**20
        states = Counter(machine.state for machine in instant.machines.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    await server.stop(None)
    seen = {"seconds_to_decide": round(elapsed, 2), "peak_mebibytes": round(peak_mebibytes)}
    print(json.dumps({"machines": MACHINES, **seen}))
    assert elapsed <= MAX_SECONDS
    assert peak_mebibytes <= MAX_MEBIBYTES + MAX_BYTES * MACHINES / 2**20
    assert instant.orders == []
    assert told["bigfleet_shard_shortfalls"] == 0
    assert told["bigfleet_shard_inventory_machines"] == MACHINES
    assert states == {
        provider_pb2.CONFIGURED: len(bound),
        provider_pb2.IDLE: MACHINES - len(bound),
    }
