"""A thousand operators on one shard: what they cost, and that none is lost.

LOAD_MINUTES says for how long (default 1), LOAD_OPERATORS how many there are.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from loaddriver.wire.operators import Tally
from loaddriver.wire.provider import InstantProvider, serve
from tests.load.operators import (
    ARRIVE_WITHIN_SECONDS,
    bound_machines,
    operators_of,
)
from tests.support.many_machines import machines
from tests.support.shard_process import decides, shard_process

pytestmark = [pytest.mark.load, pytest.mark.timeout(3600)]

MINUTES = float(os.environ.get("LOAD_MINUTES", "1"))
OPERATORS = int(os.environ.get("LOAD_OPERATORS", "1000"))
PERIOD_SECONDS = 10.0
SETTLED_AFTER_SECONDS = ARRIVE_WITHIN_SECONDS + 30.0
MAX_CORES = 1.0
_CYCLE = "bigfleet_shard_cycle_duration_seconds", ""
_DECISION = "bigfleet_shard_cycle_phase_duration_seconds", "decide"
_DECISION_CPU = "bigfleet_shard_decision_cpu_seconds", ""


async def test_a_thousand_operators_cost_less_than_a_core_and_none_is_lost(
    tmp_path: Path,
) -> None:
    """Roll-ups of 30 to 300 needs every ten seconds, of which one in a hundred has changed."""
    tally = Tally()
    operators = operators_of(OPERATORS, PERIOD_SECONDS, tally)
    bound = bound_machines(operators)
    fleet = machines(max(bound) + 1, OPERATORS, bound)
    server, provider = await serve(InstantProvider(fleet))
    async with shard_process(provider, tmp_path) as shard:
        await decides(shard)
        running = [asyncio.create_task(operator.run(shard.address)) for operator in operators]
        await asyncio.sleep(SETTLED_AFTER_SECONDS)
        assert tally.ended == []
        before_cpu, before = shard.cpu_seconds(), time.monotonic()
        histograms_before = await shard.histograms()
        sent_before = tally.sent
        tally.answer_seconds.clear()
        await asyncio.sleep(60 * MINUTES)
        elapsed = time.monotonic() - before
        cores = (shard.cpu_seconds() - before_cpu) / elapsed
        told, histograms = await shard.metrics(), await shard.histograms()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        answers = sorted(tally.answer_seconds)

        cycle, decision, cpu = (
            histograms[series].since(histograms_before[series]).numbers()
            for series in (_CYCLE, _DECISION, _DECISION_CPU)
        )
        found = {
            "operators": OPERATORS,
            "needs": sum(len(operator.needs) for operator in operators),
            "machines": len(bound),
            "seconds": round(elapsed),
            "shard_cores": round(cores, 3),
            "rollups_per_second": round((tally.sent - sent_before) / elapsed, 1),
            "answer_p50_seconds": round(answers[len(answers) // 2], 3),
            "answer_p99_seconds": round(answers[len(answers) * 99 // 100], 3),
            "answer_max_seconds": round(answers[-1], 3),
            "answers_over_a_second": sum(each > 1 for each in answers),
            "cycle": cycle,
            "decision": decision,
            "decision_cpu": cpu,
            "shard_resident_mib": shard.resident_bytes() // 2**20,
            "sessions": told["bigfleet_shard_active_sessions"],
            "lost": len(tally.ended),
            "refused": len(tally.rejected),
        }
        print(json.dumps(found))
    await server.stop(None)
    assert tally.ended == []
    assert tally.rejected == []
    assert found["sessions"] == OPERATORS
    assert cores <= MAX_CORES
