"""For how long failures in a row delay the next attempt."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_DOUBLINGS = 30  # thousands of them are no float any more


@dataclass(frozen=True)
class RetryDelays:
    """Between `min_seconds` and `max_seconds`, doubled by each failure in a row; the first
    `free_failures` cause none.
    """

    min_seconds: float
    max_seconds: float
    free_failures: int = 0

    def after(self, number: int) -> float:
        """The delay in seconds after so many failures in a row."""
        if number <= self.free_failures:
            return 0.0
        doublings = min(number - self.free_failures - 1, _MOST_DOUBLINGS)
        return min(self.min_seconds * 2.0**doublings, self.max_seconds)
