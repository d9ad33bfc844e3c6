"""The time of day, passed in so that whoever decides never reads a clock."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Wall-clock time, the one that other processes' records can be joined on."""

    def unix_seconds(self) -> float:
        """Seconds since 1970-01-01 UTC; may step when the host's clock is set."""
        ...
