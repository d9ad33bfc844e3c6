"""The harness's self-audit during a run: event-loop lag, clock steps and CPU use."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from loaddriver.judge.facts import HarnessHealth

# Of cgroup v2 and v1.
_QUOTAS = (Path("/sys/fs/cgroup/cpu.max"), Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"))
_NO_QUOTA = ("max", "-1")


@dataclass(frozen=True)
class CpuTimes:
    """CPU seconds since boot: those in use, and all.

    Time stolen by a hypervisor counts as used. Interrupts do not: on a machine that runs a fleet
    over loopback they are the run's own traffic, and belong to no process.
    """

    used: float
    all: float


def read_cpu_times() -> CpuTimes:
    """Read the times of the CPUs that this process may use."""
    usable = os.sched_getaffinity(0)
    times = [each for number, each in enumerate(psutil.cpu_times(percpu=True)) if number in usable]
    used = sum(each.user + each.nice + each.system + each.steal for each in times)
    others = sum(each.idle + each.iowait + each.irq + each.softirq for each in times)
    return CpuTimes(used, used + others)


def other_cpu_share(before: CpuTimes, now: CpuTimes, our_seconds: float) -> float | None:
    """The share of CPU time between two readings used by other processes, 0 to 1."""
    elapsed = now.all - before.all
    if elapsed <= 0:
        return None
    return max(0.0, now.used - before.used - our_seconds) / elapsed


def unmeasurable_reason(quotas: Sequence[Path] = _QUOTAS) -> str:
    """Why the CPU use of other processes cannot be attributed, or an empty text.

    With a CPU quota, other processes on the visible CPUs do not reduce what this one gets.
    """
    for path in quotas:
        try:
            limited = path.read_text().split()[0] not in _NO_QUOTA
        except (OSError, IndexError):
            continue
        if limited:
            return "this container has a CPU quota"
    return ""


TICK_INTERVAL_SECONDS = 0.1
# Shorter lag is normal on a machine whose cores are all busy.
_STALL_SECONDS = 0.25
# The CPU time of a process is lost when it exits, so that of the load is sampled.
_SAMPLE_EVERY_TICKS = 50
# Pairs of clock readings further apart than this were preempted and are discarded.
_PAIR_SECONDS = 0.001
_PAIR_ATTEMPTS = 5

CpuSeconds = Callable[[], float]


@dataclass
class LoopLagMonitor:
    """Measures event-loop lag and clock steps from periodic ticks. Pure.

    A tick is due `TICK_INTERVAL_SECONDS` after the previous one. `offset_seconds` is wall clock
    minus monotonic clock; None if the two could not be read close enough together.
    """

    stalls: int = 0
    stall_max_seconds: float = 0.0
    clock_step_max_seconds: float = 0.0
    _last_tick: float | None = None
    _last_offset: float | None = None

    def tick(self, monotonic: float, offset_seconds: float | None) -> None:
        """Record a tick."""
        if self._last_tick is not None:
            late = max(0.0, monotonic - self._last_tick - TICK_INTERVAL_SECONDS)
            self.stalls += late >= _STALL_SECONDS
            self.stall_max_seconds = max(self.stall_max_seconds, late)
        self._last_tick = monotonic
        if offset_seconds is None:
            return
        if self._last_offset is not None:
            step = abs(offset_seconds - self._last_offset)
            self.clock_step_max_seconds = max(self.clock_step_max_seconds, step)
        self._last_offset = offset_seconds


class SelfAuditor:
    """Audits the harness from `begin` to `end`, while `watch` runs beside the load.

    `others_unknown` is why the CPU use of other processes is unknown, or empty.
    """

    def __init__(self, run_cpu_seconds: CpuSeconds, others_unknown: str = "") -> None:
        self._run_cpu_seconds = run_cpu_seconds
        self._others_unknown = others_unknown
        self._lag_monitor = LoopLagMonitor()
        self._load: psutil.Process | None = None
        self._load_seconds = 0.0
        self._begun: _CpuUsage | None = None

    async def watch(self) -> None:
        """Tick until cancelled."""
        for number in itertools.count():
            self._lag_monitor.tick(time.monotonic(), clock_offset_seconds())
            if number % _SAMPLE_EVERY_TICKS == 0:
                self._sample_load()
            await asyncio.sleep(TICK_INTERVAL_SECONDS)

    def begin(self, load_pid: int) -> None:
        """Start auditing; called when the load is ready to send, before it does."""
        self._load = psutil.Process(load_pid)
        self._lag_monitor = LoopLagMonitor()
        self._begun = self._used()

    def end(self) -> HarnessHealth | None:
        """The health since `begin`; None if it was not called. The load may have exited."""
        if self._begun is None:
            return None
        now = self._used()
        return HarnessHealth(
            loop_stall_max_seconds=self._lag_monitor.stall_max_seconds,
            loop_stalls=self._lag_monitor.stalls,
            clock_step_max_seconds=self._lag_monitor.clock_step_max_seconds,
            harness_cpu_seconds=now.harness - self._begun.harness,
            run_cpu_seconds=now.run - self._begun.run,
            others_cpu_share=self._others_share(self._begun, now),
            others_unknown=self._others_unknown,
        )

    def _others_share(self, begun: _CpuUsage, now: _CpuUsage) -> float | None:
        if self._others_unknown:
            return None
        return other_cpu_share(begun.machine, now.machine, now.run - begun.run)

    def _used(self) -> _CpuUsage:
        self._sample_load()
        harness = time.process_time() + self._load_seconds
        return _CpuUsage(harness, self._run_cpu_seconds(), read_cpu_times())

    def _sample_load(self) -> None:
        if self._load is not None:
            try:
                self._load_seconds = _own_and_ended(self._load)
            except psutil.Error:
                self._load = None  # it has exited; the last sample stands


@dataclass(frozen=True)
class _CpuUsage:
    harness: float
    run: float
    machine: CpuTimes


def clock_offset_seconds() -> float | None:
    """Wall clock minus monotonic clock, within 1 ms; None if preempted on every attempt."""
    for _ in range(_PAIR_ATTEMPTS):
        before = time.monotonic()
        wall = time.time()
        after = time.monotonic()
        if after - before <= _PAIR_SECONDS:
            return wall - (before + after) / 2
    return None


def tree_cpu_seconds(root: psutil.Process) -> float:
    """CPU time of a process tree; that of exited processes is counted by their parents.

    Raises psutil.Error if `root` has exited.
    """
    total = _own_and_ended(root)
    for process in root.children(recursive=True):
        try:
            total += _own_and_ended(process)
        except psutil.Error:
            continue  # just exited, so its parent has its time
    return total


def own_tree_cpu_seconds() -> float:
    """CPU time of this process and its descendants."""
    return tree_cpu_seconds(psutil.Process())


def machine_cpu_seconds() -> float:
    """Busy CPU time of all cores of this machine."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - times.iowait - times.guest - times.guest_nice


def _own_and_ended(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system + times.children_user + times.children_system
