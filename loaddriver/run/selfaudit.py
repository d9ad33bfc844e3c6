"""The harness's self-audit during a run: event-loop lag, clock steps and CPU use."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass

from loaddriver.judge.facts import HarnessHealth
from loaddriver.record.cpu import WINDOW_SECONDS, CpuReading, CpuUse, windows
from loaddriver.run.cpu_quota import find_quotas
from loaddriver.run.cpu_reader import CpuReader, Pids
from loaddriver.run.remote_cpu import RemoteCpu
from loaddriver.substrates.base import Substrate

TICK_INTERVAL_SECONDS = 0.1
# Shorter lag is normal on a machine whose cores are all busy.
_STALL_SECONDS = 0.25
_READ_EVERY_TICKS = round(WINDOW_SECONDS / TICK_INTERVAL_SECONDS)
# Pairs of clock readings further apart than this were preempted and are discarded.
_PAIR_SECONDS = 0.001
_PAIR_ATTEMPTS = 5
_IN_PODS = "on this substrate the processes of pods cannot be attributed"
# Other processes on the visible CPUs do not reduce what a process with a quota gets.
_QUOTA = "this container has a CPU quota"


@dataclass
class LoopLagMonitor:
    """Measures event-loop lag and clock steps from periodic ticks. Pure.

    A tick is due `TICK_INTERVAL_SECONDS` after the previous one. `offset_seconds` is wall clock
    minus monotonic clock; None if the two could not be read close enough together.
    `computing_max_seconds` is the most CPU that the loop's thread itself used in one lag: in the
    rest of it the thread waited, for a core or a disk.
    """

    stalls: int = 0
    stall_max_seconds: float = 0.0
    computing_max_seconds: float = 0.0
    clock_step_max_seconds: float = 0.0
    _last_tick: float | None = None
    _last_cpu_seconds: float = 0.0
    _last_offset: float | None = None

    def tick(self, monotonic: float, cpu_seconds: float, offset_seconds: float | None) -> None:
        """Record a tick; `cpu_seconds` is the thread's CPU time so far."""
        if self._last_tick is not None:
            late = max(0.0, monotonic - self._last_tick - TICK_INTERVAL_SECONDS)
            self.stalls += late >= _STALL_SECONDS
            self.stall_max_seconds = max(self.stall_max_seconds, late)
            computed = min(late, cpu_seconds - self._last_cpu_seconds)
            self.computing_max_seconds = max(self.computing_max_seconds, computed)
        self._last_tick, self._last_cpu_seconds = monotonic, cpu_seconds
        if offset_seconds is None:
            return
        if self._last_offset is not None:
            step = abs(offset_seconds - self._last_offset)
            self.clock_step_max_seconds = max(self.clock_step_max_seconds, step)
        self._last_offset = offset_seconds


class SelfAuditor:
    """Audits the harness from `begin` to `end`, while `watch` runs beside the load.

    `others_unknown` is why the CPU use of other processes is unknown, or empty. `remote` reads that
    of the run's own elsewhere.
    """

    def __init__(
        self, reader: CpuReader, others_unknown: str = "", remote: RemoteCpu | None = None
    ) -> None:
        self._reader, self._others_unknown = reader, others_unknown
        self.remote = remote or RemoteCpu()
        self._lag_monitor = LoopLagMonitor()
        self._readings: list[CpuReading] = []

    async def watch(self) -> None:
        """Tick until cancelled."""
        for number in itertools.count():
            self._lag_monitor.tick(time.monotonic(), time.thread_time(), clock_offset_seconds())
            if number % _READ_EVERY_TICKS == 0 and number:
                self._readings.append(self._reader.read())
            await asyncio.sleep(TICK_INTERVAL_SECONDS)

    def begin(self) -> None:
        """Start auditing; called when the load is ready to send, before it does."""
        self._lag_monitor = LoopLagMonitor()
        self._readings = [self._reader.read()]

    def end(self) -> HarnessHealth | None:
        """The health since `begin`; None if it was not called."""
        if not self._readings:
            return None
        cpu = CpuUse(
            windows([*self._readings, self._reader.read()]),
            dict(self._reader.peak_memory_bytes),
            run_peak_memory_bytes=self._reader.run_peak_memory_bytes,
        )
        return HarnessHealth(
            loop_stall_max_seconds=self._lag_monitor.stall_max_seconds,
            loop_computing_max_seconds=self._lag_monitor.computing_max_seconds,
            loop_stalls=self._lag_monitor.stalls,
            clock_step_max_seconds=self._lag_monitor.clock_step_max_seconds,
            cpu=cpu,
            others_unknown=self._others_unknown,
        )


def make_auditor(
    pids: Pids, beside: Pids, substrate: Substrate, session: int | None
) -> SelfAuditor:
    """The auditor of a run on this machine, whose processes are `pids`, and those `beside` it.

    `session` is the process that plays another run at the same time, if there is one. Processes in
    pods are no children of ours, so all CPU time of this machine counts as the run's
    in each window.
    """
    quotas = find_quotas()
    in_pods = substrate.capabilities.roles_in_pods
    others_unknown = _IN_PODS if in_pods else _QUOTA if quotas else ""
    reader = CpuReader(pids, quotas, beside, whole_machine=in_pods, session=session)
    return SelfAuditor(reader, others_unknown, RemoteCpu(substrate.process_counters))


def clock_offset_seconds() -> float | None:
    """Wall clock minus monotonic clock, within 1 ms; None if preempted on every attempt."""
    for _ in range(_PAIR_ATTEMPTS):
        before = time.monotonic()
        wall = time.time()
        after = time.monotonic()
        if after - before <= _PAIR_SECONDS:
            return wall - (before + after) / 2
    return None
