"""Reads the CPU time of the machine, of the run's processes and of all others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import psutil

from loaddriver.record.cpu import RUNNER, CpuReading, CpuTimes, is_driver
from loaddriver.run.cpu_quota import CpuQuota, read_quotas
from loaddriver.run.process_table import ProcessTable, read_memory, read_table
from loaddriver.schedstat import wait_seconds

Pids = Callable[[], Mapping[str, int]]
"""Returns the process ids of the run's running processes, by name."""


class CpuReader:
    """Reads the CPU of this process, of `pids` with their descendants, and of all others. Processes
    `beside` are the run's although it did not start them.

    `session` is the process that has started this one and another run, which is played at the same
    time. Time of a process that has exited counts up to the last reading. With `whole_machine` all
    CPU time counts as the run's, because its processes cannot be told from others.
    `peak_memory_bytes` has the largest memory of each process so far, with its descendants', and
    `run_peak_memory_bytes` the largest of all at one reading, without pages of files, which they
    share; None with `whole_machine`.
    """

    def __init__(
        self,
        pids: Pids,
        quotas: Sequence[CpuQuota] = (),
        beside: Pids = dict,
        *,
        whole_machine: bool = False,
        session: int | None = None,
    ) -> None:
        self._pids, self._quotas, self._whole_machine = pids, tuple(quotas), whole_machine
        self._beside, self._session = beside, session
        self._last: dict[str, tuple[int, float]] = {}
        self._ended: dict[str, float] = {}
        self.peak_memory_bytes: dict[str, int] = {}
        self.run_peak_memory_bytes: int | None = None if whole_machine else 0

    def read(self) -> CpuReading:
        """Read everything once; it takes some milliseconds."""
        machine, table, own = read_cpu_times(), read_table(), os.getpid()
        self._note(table)
        self._note_memory(table)
        used = {
            name: seconds + self._ended.get(name, 0.0) for name, (_, seconds) in self._last.items()
        }
        beside = self._beside()
        of_run = table.tree_seconds(own) + sum(used.get(name, 0.0) for name in beside)
        roots = [own, *beside.values(), *([self._session] if self._session else [])]
        return CpuReading(
            at_seconds=time.monotonic(),
            machine=machine,
            run_seconds=machine.used if self._whole_machine else of_run,
            processes={RUNNER: time.process_time(), **used},
            others={} if self._whole_machine else _others(table, roots),
            waits={RUNNER: wait_seconds(own), **self._load_wait_seconds()},
            quotas=read_quotas(self._quotas),
            other_run_seconds=self._other_run_seconds(table, own),
        )

    def _other_run_seconds(self, table: ProcessTable, own: int) -> float:
        """Of the session without this run; a run that has ended is in what its parent reaped."""
        if self._session is None:
            return 0.0
        return table.tree_seconds(self._session) - table.tree_seconds(own)

    def _note(self, table: ProcessTable) -> None:
        """Update the time of each running process, and keep that of exited ones."""
        named = {**self._pids(), **self._beside()}
        running = {name: pid for name, pid in named.items() if pid in table.processes}
        for name, (pid, seconds) in self._last.items():
            if running.get(name) != pid:
                self._ended[name] = self._ended.get(name, 0.0) + seconds
                self._last[name] = 0, 0.0
        for name, pid in running.items():
            self._last[name] = pid, table.tree_seconds(pid)

    def _load_wait_seconds(self) -> dict[str, float]:
        running = {name: pid for name, (pid, _) in self._last.items() if pid and is_driver(name)}
        return {name: wait_seconds(pid) for name, pid in running.items()}

    def _note_memory(self, table: ProcessTable) -> None:
        """Keep the peaks of each process, and that of all of the run's."""
        own = os.getpid()
        named = {name: [*table.tree(pid)] for name, (pid, _) in self._last.items() if pid}
        of_run = {*table.tree(own), *chain.from_iterable(named.values())}
        memory = {pid: read_memory(pid) for pid in of_run}
        for name, pids in {RUNNER: [own], **named}.items():
            found = sum(memory[pid].peak_bytes for pid in pids)
            self.peak_memory_bytes[name] = max(found, self.peak_memory_bytes.get(name, 0))
        if self.run_peak_memory_bytes is not None:
            now = sum(each.own_bytes for each in memory.values())
            self.run_peak_memory_bytes = max(now, self.run_peak_memory_bytes)


def read_cpu_times() -> CpuTimes:
    """Read the times of the CPUs that this process may use."""
    usable = os.sched_getaffinity(0)
    times = [each for number, each in enumerate(psutil.cpu_times(percpu=True)) if number in usable]
    used = sum(each.user + each.nice + each.system + each.steal for each in times)
    unused = sum(each.idle + each.iowait + each.irq + each.softirq for each in times)
    return CpuTimes(used, used + unused, sum(each.steal for each in times))


def _others(table: ProcessTable, roots: Sequence[int]) -> dict[str, float]:
    """The CPU seconds of processes that are not of the run, by command and process id."""
    of_run = {pid for root in roots for pid in table.tree(root)}
    return {
        f"{process.command} ({pid})": process.own_seconds
        for pid, process in table.processes.items()
        if pid not in of_run
    }
