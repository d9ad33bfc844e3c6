"""Relative speed of this machine, for tests that bound CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable

# On the machine that the bounds were measured on.
_ADDITIONS_SECONDS, _OBJECTS_SECONDS = 0.05, 0.012


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of this process, in seconds."""
    started = time.process_time()
    work()
    return time.process_time() - started


def slowness() -> float:
    """How many times longer than on that machine it takes to add numbers, or to make objects if
    that is more, since other processes use up caches and memory bandwidth; at least 1.
    """
    additions = min(cpu_seconds(lambda: sum(n + 1 for n in range(1_000_000))) for _ in range(3))
    objects = min(cpu_seconds(lambda: {(n, str(n)): n for n in range(50_000)}) for _ in range(3))
    return max(1.0, additions / _ADDITIONS_SECONDS, objects / _OBJECTS_SECONDS)
