"""The host's clock."""

from __future__ import annotations

import time


class SystemClock:
    """Reads the host's clocks."""

    def __init__(self) -> None:
        self._began_seconds = time.time() - time.monotonic()

    def unix_seconds(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return time.time()

    def monotonic_seconds(self) -> float:
        """See `ports.clock.Clock`."""
        return self._began_seconds + time.monotonic()
