"""Debounces keys: queued once shortly after any number of changes, and at times set before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")


class DebouncedQueue(Generic[K]):
    """Calls `add` with keys, once for all changes within `debounce_seconds`."""

    def __init__(self, add: Callable[[K], None], debounce_seconds: float) -> None:
        self._add, self._debounce_seconds = add, debounce_seconds
        self._debouncing: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}

    def add_debounced(self, key: K) -> None:
        """Queue `key` after the debounce interval."""
        if key not in self._debouncing:
            self._debouncing.add(key)
            asyncio.get_running_loop().call_later(self._debounce_seconds, self._now, key)

    def _now(self, key: K) -> None:
        self._debouncing.discard(key)
        self._add(key)

    def add_after(self, key: K, seconds: float | None) -> None:
        """Queue `key` after `seconds`, replacing its timer; None cancels the timer."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._timers[key] = loop.call_later(max(0.05, seconds), self._add, key)

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()
