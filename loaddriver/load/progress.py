"""The progress of a load, over all that plays it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from loaddriver.load.files import EventResult


@dataclass(frozen=True)
class LoadProgress:
    """The progress of the load.

    `failed` counts events without effect after all attempts, `unserved` those of them for which the
    server was busy, in error or silent, `retried` events that needed more than one attempt,
    `without_target` churns that found no pod to delete. Lateness excludes the set-up step; its
    p99 is None before the first other event.
    """

    planned: int
    sent: int = 0
    failed: int = 0
    unserved: int = 0
    retried: int = 0
    without_target: int = 0
    max_lateness_seconds: float = 0.0
    p99_lateness_seconds: float | None = None
    first_failure: str = ""

    def with_result(self, result: EventResult) -> LoadProgress:
        """Return a copy with one more event."""
        failure = "" if result.ok else f"{result.id}: HTTP {result.status} {result.detail}".strip()
        return replace(
            self,
            sent=self.sent + 1,
            failed=self.failed + (not result.ok),
            unserved=self.unserved + result.unserved,
            retried=self.retried + (result.attempts > 1),
            without_target=self.without_target + result.without_target,
            first_failure=self.first_failure or failure,
        )
