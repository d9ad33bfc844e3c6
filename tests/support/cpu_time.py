"""Relative speed of this machine, for tests that bound CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable

_MILLION_ADDITIONS_SECONDS = 0.05  # on the machine that the bounds were measured on


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of this process, in seconds."""
    started = time.process_time()
    work()
    return time.process_time() - started


def slowness() -> float:
    """How many times longer a million additions take than on that machine; at least 1."""
    least = min(cpu_seconds(lambda: sum(n + 1 for n in range(1_000_000))) for _ in range(3))
    return max(1.0, least / _MILLION_ADDITIONS_SECONDS)
