"""Bounded garbage collection pauses, and none while modules are imported.

A full collection stops the process to traverse every object: with the needs of a thousand clusters,
or a hundred thousand domains, for most of a second each time. So objects that survive a long
collection are frozen (`gc.freeze`), and later collections traverse only newer ones. Frozen objects
without reference cycles are still freed, so little garbage accumulates; once their number has
doubled and millions have come, all are unfrozen for one collection.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

LONG_PAUSE_SECONDS = 0.05
# To count what is frozen takes as long as to look at all of it: done at every so many freezes.
COUNTED_EVERY = 16
# A full collection of so many objects stops the process for more than a second. So many must have
# been added: doubling alone happens while the demand of a small process grows.
MANY = 2_000_000
_OLDEST = 2


@contextmanager
def no_gc() -> Iterator[None]:
    """Collect no garbage inside the `with` block, which imports modules: they make many objects
    that stay, and to look through them again and again takes an eighth of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def bounded_gc_pauses() -> Iterator[None]:
    """Freeze objects that survive long collections inside the `with` block."""
    freezer = _FreezeAfterLongPause()
    gc.callbacks.append(freezer)
    try:
        yield
    finally:
        gc.callbacks.remove(freezer)
        gc.unfreeze()


class _FreezeAfterLongPause:
    """A callback for `gc.callbacks`."""

    def __init__(self) -> None:
        self._started_seconds = 0.0
        self._count_at_full_collection = 0
        #: since the last full collection
        self._freezes = 0

    def __call__(self, phase: str, collection: Mapping[str, int]) -> None:
        """Handle the start or the end of a collection; see `gc.callbacks`."""
        if collection["generation"] != _OLDEST:
            return
        if phase == "start":
            self._started_seconds = time.perf_counter()
        elif time.perf_counter() - self._started_seconds > LONG_PAUSE_SECONDS:
            self._freeze()

    def _freeze(self) -> None:
        gc.freeze()
        self._freezes += 1
        if self._freezes == 1:
            self._count_at_full_collection = gc.get_freeze_count()
        elif self._freezes % COUNTED_EVERY == 0 and self._have_become_many():
            gc.unfreeze()
            self._freezes = 0

    def _have_become_many(self) -> bool:
        before = self._count_at_full_collection
        return gc.get_freeze_count() > before + max(before, MANY)
