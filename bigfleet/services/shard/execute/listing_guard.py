"""Doubt about a full listing that suddenly lacks most machines.

A provider that has lost sight of its own fleet for a moment (a half-read database, a region that
does not answer) would otherwise have every need bought for anew. Such a listing is believed only
when every one has said so for half a minute; until then the missing machines are what they were.
"""

from __future__ import annotations

MIN_MACHINES = 10
MIN_KEPT_FRACTION = 0.5
HOLD_SECONDS = 30.0
RELIST_INTERVAL_SECONDS = 5.0


class ListingGuard:
    """Remembers since when most machines have been missing."""

    def __init__(self) -> None:
        self._since_seconds: float | None = None

    def reason_to_hold(self, known: int, kept: int, now_seconds: float) -> str:
        """Why a full listing is not believed yet, "" when it is; it has `kept` of the `known`."""
        if known < MIN_MACHINES or kept >= MIN_KEPT_FRACTION * known:
            self._since_seconds = None
            return ""
        if self._since_seconds is None:
            self._since_seconds = now_seconds
        left_seconds = self._since_seconds + HOLD_SECONDS - now_seconds
        if left_seconds <= 0:
            self._since_seconds = None
            return ""
        return (
            f"it lacks {known - kept} of {known} machines; they count as they last were, and as "
            f"gone if every listing of the next {left_seconds:.0f} s lacks them too"
        )
