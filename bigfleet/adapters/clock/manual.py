"""A clock that a test advances."""

from __future__ import annotations


class ManualClock:
    """Starts at `start_seconds` and moves only by `advance`; `step` sets the time of day."""

    def __init__(self, start_seconds: float = 1_000_000.0) -> None:
        self._now_seconds, self._stepped_seconds = start_seconds, 0.0

    def unix_seconds(self) -> float:
        """The time of day, steps included."""
        return self._now_seconds + self._stepped_seconds

    def monotonic_seconds(self) -> float:
        """The time, steps excluded."""
        return self._now_seconds

    def step(self, seconds: float) -> None:
        """Shift the time of day; no time passes."""
        self._stepped_seconds += seconds

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        self._now_seconds += seconds
