"""Doubt about a roll-up that takes back nearly everything at once.

An operator whose cache is empty for a moment would otherwise have its whole cluster reclaimed. Such
a roll-up is held until three in a row agree, or until nothing else was said for as long as three
would take: an operator that speaks only on change says nothing while it agrees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

LEAST_ROWS = 10
KEPT_FRACTION = 0.1
AGREEING = 3
SILENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class _Held:
    count: int
    since_seconds: float
    accept: Callable[[], None]


class RollUpGuard:
    """At most one held roll-up per cluster, the newest."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    def holds(
        self, cluster: str, accepted: int, kept: int, now_seconds: float, accept: Callable[[], None]
    ) -> str:
        """Why the roll-up is held, "" when it is to be taken now.

        `accepted` rows are in force, `kept` of them are in the new roll-up; `accept` takes it over,
        should it be released later.
        """
        before = self._held.pop(cluster, None)
        if accepted < LEAST_ROWS or kept >= KEPT_FRACTION * accepted:
            return ""
        count = 1 if before is None else before.count + 1
        if count >= AGREEING:
            return ""
        self._held[cluster] = _Held(count, now_seconds, accept)
        return (
            f"held: it keeps {kept} of {accepted} needs; it counts once {AGREEING} in a row say so "
            f"(this is number {count}) or {SILENCE_SECONDS:.0f} s pass without another"
        )

    def release(self, now_seconds: float) -> list[str]:
        """Take over what was held long enough without contradiction; names the clusters."""
        due = [c for c, h in self._held.items() if now_seconds - h.since_seconds >= SILENCE_SECONDS]
        for cluster in due:
            self._held.pop(cluster).accept()
        return due

    def forget(self, cluster: str) -> None:
        """Drop what is held: whoever said it is gone and cannot contradict it any more."""
        self._held.pop(cluster, None)
