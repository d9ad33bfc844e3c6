"""What both shapes of a load have in common: a constant number of users, from start to end."""

from __future__ import annotations

import time

from locust import LoadTestShape

from loaddriver.load.files import LoadStarted, Recorder


class ConstantUsers(LoadTestShape):
    """Records when all users have started, and counts the seconds since the load was to stop."""

    abstract = True  # not one that Locust would run

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # published half typed
        self._started = False
        self._stopped_at: float | None = None

    def note_start(self, users: int, recorder: Recorder) -> None:
        """Record the start once, as soon as all `users` run."""
        if not self._started and self.runner is not None and self.runner.user_count == users:
            self._started = True
            recorder.record(LoadStarted(at=time.time()))

    def seconds_stopping(self) -> float:
        """Since the first call."""
        self._stopped_at = self._stopped_at or time.monotonic()
        return time.monotonic() - self._stopped_at
