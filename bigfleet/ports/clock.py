"""Clocks, passed in so that whoever decides never reads one."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Wall-clock time, the one that other processes' records can be joined on."""

    def unix_seconds(self) -> float:
        """Seconds since 1970-01-01 UTC; may step when the host's clock is set."""
        ...

    def monotonic_seconds(self) -> float:
        """`unix_seconds` as it was when the process began, and what has passed since: it never
        steps. Everything that is held, waited for or aged in memory is measured by it.
        """
        ...


def to_nanos(seconds: float) -> int:
    """Seconds in the unit of the wire's timestamps."""
    return int(seconds * 1_000_000_000)
