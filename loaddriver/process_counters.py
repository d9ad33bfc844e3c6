"""CPU and memory of a process elsewhere, by the metrics that it serves: pure.

The names are those of Prometheus' clients for Go and Python, and of BigFleet for the processes that
a role starts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_CPU, _STARTED, _MEMORY = (
    "process_cpu_seconds_total",
    "process_start_time_seconds",
    "process_resident_memory_bytes",
)
_CPU_OF_CHILDREN, _MEMORY_OF_CHILDREN = (
    "bigfleet_child_processes_cpu_seconds_total",
    "bigfleet_child_processes_resident_memory_bytes",
)
NAMES = (_CPU, _STARTED, _MEMORY, _CPU_OF_CHILDREN, _MEMORY_OF_CHILDREN)
"""All metrics that `counters_of` reads."""
# A literal begin makes the search fast: an API server's metrics are megabytes.
_OWN = re.compile(rb"\n(process_(?:cpu|start|resident)_\w+) (\S+)")
_OF_CHILDREN = re.compile(rb"\n(bigfleet_child_processes_\w+) (\S+)")
# The time of the boot, from which that of a start is computed, is rounded to seconds.
_SAME_START_SECONDS = 2.5


@dataclass(frozen=True)
class ProcessCounters:
    """CPU seconds of a process since it started, when that was (Unix time), and its memory now.

    Processes that it started are included.
    """

    cpu_seconds: float
    started_seconds: float
    memory_bytes: int


def counters_of(metrics: bytes) -> ProcessCounters:
    """The counters in a text of metrics. ValueError if it lacks one that every process has."""
    found = {
        name.decode(): float(value)
        for pattern in (_OWN, _OF_CHILDREN)
        for name, value in pattern.findall(b"\n" + metrics)
    }
    if lacking := sorted({_CPU, _STARTED, _MEMORY} - found.keys()):
        raise ValueError(f"its metrics lack {', '.join(lacking)}")
    return ProcessCounters(
        cpu_seconds=found[_CPU] + found.get(_CPU_OF_CHILDREN, 0.0),
        started_seconds=found[_STARTED],
        memory_bytes=round(found[_MEMORY] + found.get(_MEMORY_OF_CHILDREN, 0.0)),
    )


def used_between(before: ProcessCounters, now: ProcessCounters) -> float:
    """CPU seconds between two readings; a process that replaced the first one used all its own."""
    if now.started_seconds - before.started_seconds > _SAME_START_SECONDS:
        return now.cpu_seconds
    # That of a child that has just ended may be missing for a moment.
    return max(0.0, now.cpu_seconds - before.cpu_seconds)


Readings = Mapping[str, ProcessCounters | None]
"""Counters by component; None of one that does not tell."""


class UsedSince:
    """What components have used since a first reading, by the readings so far.

    What a process used that was replaced counts up to its last reading. `unknown` are those that
    the first or the last reading lacks.
    """

    def __init__(self, first: Readings) -> None:
        self._last = {name: each for name, each in first.items() if each is not None}
        self.cpu_seconds = dict.fromkeys(self._last, 0.0)
        self.peak_memory_bytes = {name: each.memory_bytes for name, each in self._last.items()}
        self.unknown = tuple(sorted(first.keys() - self._last.keys()))

    def note(self, readings: Readings) -> None:
        """Add a reading, of all components or of some; one that does not tell may tell later."""
        for name, now in readings.items():
            before = self._last.get(name)
            if now is None or before is None:
                continue
            self.cpu_seconds[name] += used_between(before, now)
            self.peak_memory_bytes[name] = max(self.peak_memory_bytes[name], now.memory_bytes)
            self._last[name] = now

    def end(self, readings: Readings) -> None:
        """Add the last reading, of all components; what it lacks is unknown."""
        self.note(readings)
        silent = {name for name in self._last if readings.get(name) is None}
        self.unknown = tuple(sorted({*self.unknown, *silent}))
        for name in silent:
            del self.cpu_seconds[name], self.peak_memory_bytes[name], self._last[name]
