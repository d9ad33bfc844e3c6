"""When a key is looked at: soon after a change, however many come, and at times set before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")


class Pacer(Generic[K]):
    """Passes keys on to `add`; changes within `gather_seconds` make one look."""

    def __init__(self, add: Callable[[K], None], gather_seconds: float) -> None:
        self._add, self._gather_seconds = add, gather_seconds
        self._soon: set[K] = set()
        self._later: dict[K, asyncio.TimerHandle] = {}

    def soon(self, key: K) -> None:
        """Something changed."""
        if key not in self._soon:
            self._soon.add(key)
            asyncio.get_running_loop().call_later(self._gather_seconds, self._now, key)

    def _now(self, key: K) -> None:
        self._soon.discard(key)
        self._add(key)

    def later(self, key: K, seconds: float | None) -> None:
        """Look again after `seconds`, instead of at any time set before; None for never."""
        if (timer := self._later.pop(key, None)) is not None:
            timer.cancel()
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._later[key] = loop.call_later(max(0.05, seconds), self._add, key)

    def close(self) -> None:
        """Forget what was set for later."""
        for timer in self._later.values():
            timer.cancel()
