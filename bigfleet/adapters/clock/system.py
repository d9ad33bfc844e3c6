"""The host's clock."""

from __future__ import annotations

import time


class SystemClock:
    """Reads the host's clock."""

    def unix_seconds(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return time.time()
