"""Garbage collection that never keeps sessions waiting.

A full collection looks at every object there is, and nobody does anything meanwhile: with the needs
of a thousand clusters, or a hundred thousand domains, that takes the better part of a second, each
time. What has outlived one that took long is therefore set aside, and the next ones look at what is
newer. Objects without cycles are freed as ever, so little piles up among those set aside; once they
have doubled, all are looked at again.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

LONG_PAUSE_SECONDS = 0.05
_OLDEST = 2


@contextmanager
def bounded_gc_pauses() -> Iterator[None]:
    """Inside the `with`, what outlives long collections is set aside."""
    freezer = _FreezeAfterLongPause()
    gc.callbacks.append(freezer)
    try:
        yield
    finally:
        gc.callbacks.remove(freezer)
        gc.unfreeze()


class _FreezeAfterLongPause:
    """To be called by `gc` when each collection begins and ends."""

    def __init__(self) -> None:
        self._started_seconds = 0.0
        self._count_at_full_collection = 0

    def __call__(self, phase: str, collection: Mapping[str, int]) -> None:
        """See `gc.callbacks`."""
        if collection["generation"] != _OLDEST:
            return
        if phase == "start":
            self._started_seconds = time.perf_counter()
        elif time.perf_counter() - self._started_seconds > LONG_PAUSE_SECONDS:
            self._freeze()

    def _freeze(self) -> None:
        was_full = gc.get_freeze_count() == 0
        gc.freeze()
        count = gc.get_freeze_count()
        if was_full:
            self._count_at_full_collection = count
        elif count > 2 * self._count_at_full_collection:
            gc.unfreeze()
