"""Python's collector of garbage, kept from standing in the way while the load runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# Never, for the length of a run.
_OLD_GENERATION_ROUNDS = 1_000_000_000


@contextmanager
def full_collections_paused() -> Iterator[None]:
    """Only young objects are looked through inside.

    A run keeps a record of every pod, in millions of objects that are never garbage. Looking
    through them all stops the event loop for as long as that takes, seconds where the cores are
    busy, and steps of the load are then released late.
    """
    young, middle, old = gc.get_threshold()
    gc.collect()
    gc.set_threshold(young, middle, _OLD_GENERATION_ROUNDS)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old)
