"""A clock that stands still until it is told otherwise."""

from __future__ import annotations


class ManualClock:
    """Starts at `start_seconds` and moves only by `advance`."""

    def __init__(self, start_seconds: float = 1_000_000.0) -> None:
        self._now_seconds = start_seconds

    def unix_seconds(self) -> float:
        """The time it was last moved to."""
        return self._now_seconds

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass at once."""
        self._now_seconds += seconds
