"""What the processes use that this one started, as a coordinator starts its etcd."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

_PROC = Path("/proc")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Numbers of fields after the command in /proc/PID/stat: CPU time is own and of waited-for children.
_PARENT, _CPU, _PAGES = 1, slice(11, 15), 21


class ChildProcesses:
    """A collector of CPU and memory of this process's descendants.

    CPU time of those that have ended, and were waited for, stays counted. A scrape of a process
    without any costs one system call.
    """

    def collect(self) -> Iterator[Metric]:
        """One counter and one gauge, also without descendants."""
        own = os.times()
        # Whole ticks: a sum of fractions may fall by its rounding, and a counter must not.
        ticks = round((own.children_user + own.children_system) * _TICKS_PER_SECOND)
        pages = 0
        for stat in _descendants() if _has_children() else ():
            ticks += sum(map(int, stat[_CPU]))
            pages += int(stat[_PAGES])
        yield CounterMetricFamily(
            "bigfleet_child_processes_cpu_seconds_total",
            "CPU time of processes that this one started, also of those that have ended",
            value=ticks / _TICKS_PER_SECOND,
        )
        yield GaugeMetricFamily(
            "bigfleet_child_processes_resident_memory_bytes",
            "Resident memory of processes that this one started",
            value=pages * _PAGE_BYTES,
        )


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # takes nothing from others
    except ChildProcessError:
        return False
    return True


def _descendants() -> Iterator[list[bytes]]:
    """The fields of each descendant's stat."""
    stats = dict(_stats())
    known = {os.getpid()}
    # The numbers of processes need not be in the order of their starts.
    while found := {pid for pid, stat in stats.items() if int(stat[_PARENT]) in known} - known:
        known |= found
        yield from (stats[pid] for pid in found)


def _stats() -> Iterator[tuple[int, list[bytes]]]:
    for name in os.listdir(_PROC):
        if name.isdecimal():
            try:
                text = (_PROC / name / "stat").read_bytes()
            except OSError:
                continue  # it has just ended
            yield int(name), text.rpartition(b") ")[2].split()  # a command may have spaces
