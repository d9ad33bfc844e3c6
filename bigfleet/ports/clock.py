"""Clocks, injected so that decisions never read the system time."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Wall-clock time, comparable across processes, and monotonic time."""

    def unix_seconds(self) -> float:
        """Seconds since 1970-01-01 UTC; may step when the host's clock is set."""
        ...

    def monotonic_seconds(self) -> float:
        """`unix_seconds` at the start of the process plus the time elapsed since; never steps. Use
        it for all timeouts, holds and ages in memory.
        """
        ...


def to_nanos(seconds: float) -> int:
    """Seconds in the unit of the wire's timestamps."""
    return int(seconds * 1_000_000_000)
