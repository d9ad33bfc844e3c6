"""A shard decides ten thousand times while demand changes, and its memory comes to rest.

LOAD_CYCLES says how often (default 10,000).
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from pathlib import Path

import pytest

from loaddriver.wire.operators import Tally
from loaddriver.wire.provider import InstantProvider, serve
from tests.load.operators import ARRIVE_WITHIN_SECONDS, bound_machines, operators_of
from tests.support.many_machines import machines
from tests.support.shard_process import decides, shard_process

pytestmark = [pytest.mark.load, pytest.mark.timeout(7200)]

CYCLES = int(os.environ.get("LOAD_CYCLES", "10000"))
MACHINES, OPERATORS = 5_000, 20
# In the first third of the decisions, bounded logs and caches fill; the other two are compared.
SAMPLES, MAX_GROWTH = 51, 0.01


async def test_memory_comes_to_rest_while_a_shard_decides_ten_thousand_times(
    tmp_path: Path,
) -> None:
    """Each operator changes one in a hundred of its needs every second."""
    tally = Tally()
    operators = operators_of(OPERATORS, 1.0, tally)
    bound = bound_machines(operators)
    server, provider = await serve(InstantProvider(machines(MACHINES, OPERATORS, bound)))
    async with shard_process(provider, tmp_path, "--cycle", "0.01") as shard:
        await decides(shard)
        running = [asyncio.create_task(each.run(shard.address)) for each in operators]
        await asyncio.sleep(2 * ARRIVE_WITHIN_SECONDS)
        resident_bytes, started = list[int](), time.monotonic()
        before = await shard.cycles()
        for sample in range(1, SAMPLES + 1):
            await decides(shard, before + CYCLES * sample // SAMPLES)
            resident_bytes.append(shard.resident_bytes())
        seconds, cycles = time.monotonic() - started, await shard.cycles() - before
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    await server.stop(None)
    third = SAMPLES // 3
    first, middle, last = (
        statistics.median(resident_bytes[at * third : (at + 1) * third]) / 2**20 for at in range(3)
    )
    found = {"machines": MACHINES, "cycles": cycles, "seconds": round(seconds)}
    medians = {"mib_by_thirds": [round(each, 1) for each in (first, middle, last)]}
    print(json.dumps({**found, **medians}))
    assert tally.ended == []
    assert last <= middle * (1 + MAX_GROWTH)
