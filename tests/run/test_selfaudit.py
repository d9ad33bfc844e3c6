"""The self-audit detects each kind of disturbance, which the tests provoke."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaddriver.run import selfaudit
from loaddriver.run.selfaudit import (
    CpuTimes,
    LoopLagMonitor,
    SelfAuditor,
    clock_offset_seconds,
    machine_cpu_seconds,
    other_cpu_share,
    own_tree_cpu_seconds,
    tree_cpu_seconds,
    unmeasurable_reason,
)
from tests.support.cpu_time import slowness

_SCRIPT = """
import sys, time
for line in sys.stdin:
    until = time.process_time() + float(line)
    while time.process_time() < until:
        pass
    print("burnt", flush=True)
"""


class Burner:
    """A child process that uses CPU on request."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", _SCRIPT]
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.child.pid

    def burn(self, seconds: float) -> None:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(f"{seconds}\n")
        self.child.stdin.flush()
        assert self.child.stdout.readline() == "burnt\n"

    def end(self) -> None:
        with self.child:
            self.child.kill()


@pytest.fixture
def burner() -> Iterator[Burner]:
    burner = Burner()
    yield burner
    burner.end()


@asynccontextmanager
async def watching(auditor: SelfAuditor) -> AsyncIterator[None]:
    task = asyncio.create_task(auditor.watch())
    await asyncio.sleep(0.3)
    yield
    await asyncio.sleep(0.3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def burn(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


async def test_event_loop_lag_is_detected(burner: Burner) -> None:
    auditor = SelfAuditor(own_tree_cpu_seconds)
    auditor.begin(burner.pid)
    async with watching(auditor):
        time.sleep(0.6)  # noqa: ASYNC251 - this is the stall
    seen = auditor.end()
    assert seen is not None
    assert seen.loop_stalls >= 1
    assert seen.loop_stall_max_seconds >= 0.45


async def test_a_clock_step_is_detected(burner: Burner, monkeypatch: pytest.MonkeyPatch) -> None:
    auditor = SelfAuditor(own_tree_cpu_seconds)
    auditor.begin(burner.pid)
    real = time.time
    async with watching(auditor):
        monkeypatch.setattr(time, "time", lambda: real() - 3)
    seen = auditor.end()
    assert seen is not None
    assert seen.clock_step_max_seconds == pytest.approx(3, abs=0.05)


def test_harness_cpu_is_that_of_runner_and_load_and_part_of_the_run(burner: Burner) -> None:
    auditor, other = SelfAuditor(own_tree_cpu_seconds), Burner()
    auditor.begin(burner.pid)
    burn(0.2)
    burner.burn(0.2)
    other.burn(0.6)
    other.end()
    seen = auditor.end()
    assert seen is not None
    assert seen.harness_cpu_seconds >= 0.35
    assert seen.run_cpu_seconds >= seen.harness_cpu_seconds + 0.5
    assert seen.harness_cpu_share is not None
    assert 0 < seen.harness_cpu_share < 1


async def test_the_cpu_of_the_load_counts_after_it_has_exited(burner: Burner) -> None:
    auditor = SelfAuditor(own_tree_cpu_seconds)
    auditor.begin(burner.pid)
    burner.burn(0.4)
    async with watching(auditor):
        burner.end()
    seen = auditor.end()
    assert seen is not None
    assert seen.harness_cpu_seconds >= 0.35


def test_before_the_load_there_is_no_result() -> None:
    assert SelfAuditor(own_tree_cpu_seconds).end() is None


async def test_auditing_costs_less_than_half_a_percent_of_a_core() -> None:
    """Measured over many ticks without their pauses."""
    heart, beats = LoopLagMonitor(), 2000
    started = time.process_time()
    for _ in range(beats):
        heart.tick(time.monotonic(), clock_offset_seconds())
    per_beat = (time.process_time() - started) / beats
    assert per_beat < 0.005 * selfaudit.TICK_INTERVAL_SECONDS * slowness()


@given(st.lists(st.floats(0, 5), min_size=1, max_size=30))
def test_the_longest_lag_is_reported(pauses: list[float]) -> None:
    heart, now = LoopLagMonitor(), 0.0
    heart.tick(now, None)
    for pause in pauses:
        now += selfaudit.TICK_INTERVAL_SECONDS + pause
        heart.tick(now, None)
    assert heart.stall_max_seconds == pytest.approx(max(pauses), abs=1e-6)
    assert heart.clock_step_max_seconds == 0


def test_a_tree_includes_children_and_their_exited_descendants() -> None:
    burner, before = Burner(), own_tree_cpu_seconds()
    burner.burn(0.4)
    assert tree_cpu_seconds(psutil.Process(burner.pid)) >= 0.35
    assert own_tree_cpu_seconds() - before >= 0.35
    burner.end()
    assert own_tree_cpu_seconds() - before >= 0.35


def test_the_whole_machine_used_at_least_what_this_process_used() -> None:
    before = machine_cpu_seconds()
    burn(0.3)
    assert machine_cpu_seconds() - before >= 0.2


def test_cpu_of_other_processes_is_neither_the_runs_nor_idle(burner: Burner) -> None:
    """A process outside the run, on a machine without a CPU quota."""
    auditor = SelfAuditor(time.process_time)
    auditor.begin(burner.pid)
    began = time.monotonic()
    burner.burn(1.0)
    least = 0.9 / ((time.monotonic() - began) * len(os.sched_getaffinity(0)))
    seen = auditor.end()
    assert seen is not None
    assert seen.others_cpu_share is not None
    assert least <= seen.others_cpu_share <= 1


def test_unattributable_cpu_of_others_is_unknown(burner: Burner) -> None:
    auditor = SelfAuditor(own_tree_cpu_seconds, "it is hidden")
    auditor.begin(burner.pid)
    seen = auditor.end()
    assert seen is not None
    assert (seen.others_cpu_share, seen.others_unknown) == (None, "it is hidden")


@pytest.mark.parametrize(("own", "share"), [(1.0, 0.25), (0.0, 0.5), (2.0, 0.0), (3.0, 0.0)])
def test_the_share_of_others_is_of_all_cpu_time(own: float, share: float) -> None:
    """Own time never counts as that of others, despite rounding."""
    assert other_cpu_share(CpuTimes(10.0, 20.0), CpuTimes(12.0, 24.0), own) == share
    assert other_cpu_share(CpuTimes(10.0, 20.0), CpuTimes(10.0, 20.0), own) is None


@pytest.mark.parametrize(
    ("files", "limited"),
    [
        ({"v2": "max 100000\n"}, False),
        ({"v2": "400000 100000\n"}, True),
        ({"v1": "-1\n"}, False),
        ({"v1": "200000\n"}, True),
        ({}, False),
    ],
)
def test_a_cpu_quota_is_detected(tmp_path: Path, files: dict[str, str], limited: bool) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    reason = unmeasurable_reason([tmp_path / "v2", tmp_path / "v1"])
    assert bool(reason) == limited
