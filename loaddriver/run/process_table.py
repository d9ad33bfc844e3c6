"""CPU time and peak memory of this machine's processes, from /proc."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_OWN_MEMORY, _PEAK_MEMORY = (b"RssAnon:", b"RssShmem:"), b"VmHWM:"
# Numbers of fields after the command in /proc/PID/stat.
_PARENT, _USER, _SYSTEM, _REAPED_USER, _REAPED_SYSTEM = 1, 11, 12, 13, 14


class ProcessTimes(NamedTuple):
    """CPU seconds of a process, and of its descendants that have exited and were waited for."""

    parent: int
    command: str
    own_seconds: float
    reaped_seconds: float


class ResidentMemory(NamedTuple):
    """Resident memory of a process: its own now, and that with the pages of files at most so far.

    Pages of files are often shared with other processes, and the kernel can drop them.
    """

    own_bytes: int
    peak_bytes: int


class ProcessTable:
    """All visible processes at one moment, by process id."""

    def __init__(self, processes: Mapping[int, ProcessTimes]) -> None:
        self.processes = processes
        self._children: defaultdict[int, list[int]] = defaultdict(list)
        for pid, process in processes.items():
            self._children[process.parent].append(pid)

    def tree(self, root: int) -> Iterator[int]:
        """A process and its descendants; nothing if it has exited."""
        if root in self.processes:
            yield root
            for child in self._children[root]:
                yield from self.tree(child)

    def tree_seconds(self, root: int) -> float:
        """CPU seconds of a process tree; that of exited processes is counted by their parents."""
        found = (self.processes[pid] for pid in self.tree(root))
        return sum(process.own_seconds + process.reaped_seconds for process in found)


def read_table(proc: Path = PROC) -> ProcessTable:
    """Read the times of all visible processes; one that exits meanwhile is left out."""
    found: dict[int, ProcessTimes] = {}
    for name in os.listdir(proc):
        if name.isdecimal():
            try:
                found[int(name)] = _parsed((proc / name / "stat").read_bytes())
            except OSError:
                continue
    return ProcessTable(found)


def read_memory(pid: int, proc: Path = PROC) -> ResidentMemory:
    """The resident memory of a process; none if it has exited."""
    try:
        status = (proc / str(pid) / "status").read_bytes()
    except OSError:
        return ResidentMemory(0, 0)
    # Kernel threads have no such lines.
    kibibytes = dict.fromkeys((*_OWN_MEMORY, _PEAK_MEMORY), 0)
    for line in status.splitlines():
        name, *values = line.split()
        if name in kibibytes:
            kibibytes[name] = int(values[0])
    own = sum(kibibytes[name] for name in _OWN_MEMORY)
    return ResidentMemory(1024 * own, 1024 * kibibytes[_PEAK_MEMORY])


def _parsed(stat: bytes) -> ProcessTimes:
    """Parse a stat line; a command may contain spaces and parentheses."""
    head, _, rest = stat.rpartition(b") ")
    command, fields = head.partition(b" (")[2], rest.split()
    own = int(fields[_USER]) + int(fields[_SYSTEM])
    reaped = int(fields[_REAPED_USER]) + int(fields[_REAPED_SYSTEM])
    return ProcessTimes(
        int(fields[_PARENT]),
        command.decode(errors="replace"),
        own / _TICKS_PER_SECOND,
        reaped / _TICKS_PER_SECOND,
    )
