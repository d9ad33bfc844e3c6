"""When a key is looked at: soon after a change, however many come, and at times set before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")


class DebouncedQueue(Generic[K]):
    """Passes keys on to `add`; changes within `debounce_seconds` make one look."""

    def __init__(self, add: Callable[[K], None], debounce_seconds: float) -> None:
        self._add, self._debounce_seconds = add, debounce_seconds
        self._debouncing: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}

    def add_debounced(self, key: K) -> None:
        """Something changed."""
        if key not in self._debouncing:
            self._debouncing.add(key)
            asyncio.get_running_loop().call_later(self._debounce_seconds, self._now, key)

    def _now(self, key: K) -> None:
        self._debouncing.discard(key)
        self._add(key)

    def add_after(self, key: K, seconds: float | None) -> None:
        """Look again after `seconds`, instead of at any time set before; None for never."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._timers[key] = loop.call_later(max(0.05, seconds), self._add, key)

    def close(self) -> None:
        """Forget what was set for later."""
        for timer in self._timers.values():
            timer.cancel()
