"""The self-audit detects each kind of disturbance, which the tests provoke."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaddriver.record import cpu
from loaddriver.run import selfaudit
from loaddriver.run.cpu_reader import CpuReader
from loaddriver.run.selfaudit import LoopLagMonitor, SelfAuditor, clock_offset_seconds
from tests.run.burner import Burner, burn
from tests.support.cpu_time import slowness
from tests.support.waiting import eventually


def auditor_of(others_unknown: str = "", **pids: int) -> SelfAuditor:
    """An auditor of this process and of its children."""
    return SelfAuditor(CpuReader(lambda: pids), others_unknown)


@asynccontextmanager
async def watching(auditor: SelfAuditor) -> AsyncIterator[None]:
    task = asyncio.create_task(auditor.watch())
    await asyncio.sleep(0.3)
    yield
    await asyncio.sleep(0.3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(("block", "computing"), [(time.sleep, (0, 0.2)), (burn, (0.45, 2))])
async def test_a_stall_is_detected_and_whether_the_loop_itself_computed(
    block: Callable[[float], None], computing: tuple[float, float]
) -> None:
    """A loop that waits for a core stalls without using one."""
    auditor = auditor_of()
    auditor.begin()
    async with watching(auditor):
        block(0.6)
    seen = auditor.end()
    assert seen is not None
    assert seen.loop_stalls >= 1
    assert seen.loop_stall_max_seconds >= 0.45
    assert computing[0] <= seen.loop_computing_max_seconds <= computing[1]


async def test_a_clock_step_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    auditor = auditor_of()
    auditor.begin()
    real = time.time
    async with watching(auditor):
        monkeypatch.setattr(time, "time", lambda: real() - 3)
    seen = auditor.end()
    assert seen is not None
    assert seen.clock_step_max_seconds == pytest.approx(3, abs=0.05)


def test_harness_cpu_is_that_of_runner_and_load_and_part_of_the_run(burner: Burner) -> None:
    other = Burner()
    auditor = auditor_of(locust=burner.pid, shard=other.pid)
    auditor.begin()
    burn(0.2)
    burner.burn(0.2)
    other.burn(0.6)
    seen = auditor.end()
    other.end()
    assert seen is not None
    assert 0.35 <= seen.harness_cpu_seconds < 0.6
    assert seen.cpu.whole.run_seconds >= seen.harness_cpu_seconds + 0.5
    assert seen.cpu.whole.processes["shard"] >= 0.55
    assert seen.harness_cpu_share is not None
    assert 0 < seen.harness_cpu_share < 1


async def test_windows_follow_each_other_while_the_load_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the first request to the last, without gaps."""
    monkeypatch.setattr(selfaudit, "_READ_EVERY_TICKS", 2)
    monkeypatch.setattr(cpu, "_MIN_WINDOW_SECONDS", 0.05)
    auditor = auditor_of()
    before = time.monotonic()
    auditor.begin()
    begun = time.monotonic()
    async with watching(auditor):
        burn(0.2)
        await eventually(lambda: len(auditor._readings) > 3, "three readings beside the load")
    ends = time.monotonic()
    seen = auditor.end()
    after = time.monotonic()
    assert seen is not None
    assert len(seen.cpu.windows) >= 3
    assert ends - begun - 1e-6 <= seen.cpu.whole.seconds <= after - before + 1e-6


def test_before_the_load_there_is_no_result() -> None:
    assert auditor_of().end() is None


async def test_auditing_costs_less_than_half_a_percent_of_a_core() -> None:
    """Measured over many ticks without their pauses."""
    heart, beats = LoopLagMonitor(), 2000
    started = time.process_time()
    for _ in range(beats):
        heart.tick(time.monotonic(), time.thread_time(), clock_offset_seconds())
    per_beat = (time.process_time() - started) / beats
    assert per_beat < 0.005 * selfaudit.TICK_INTERVAL_SECONDS * slowness()


@given(st.lists(st.floats(0, 5), min_size=1, max_size=30))
def test_the_longest_lag_is_reported(pauses: list[float]) -> None:
    heart, now = LoopLagMonitor(), 0.0
    heart.tick(now, 0.0, None)
    for pause in pauses:
        now += selfaudit.TICK_INTERVAL_SECONDS + pause
        heart.tick(now, 0.0, None)
    assert heart.stall_max_seconds == pytest.approx(max(pauses), abs=1e-6)
    assert heart.clock_step_max_seconds == 0


def test_an_unknown_use_of_others_keeps_its_reason() -> None:
    auditor = auditor_of("it is hidden")
    auditor.begin()
    seen = auditor.end()
    assert seen is not None
    assert seen.others_unknown == "it is hidden"
