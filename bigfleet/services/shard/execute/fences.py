"""The fence that every order carries: this shard, this start, and a number that only grows."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable

from bigfleet.model.errors import Unavailable
from bigfleet.ports.coordinator import Coordinator
from bigfleet.ports.provider import CapacityProvider, Fence
from bigfleet.ports.store import EpochStore

RETRY_INTERVAL_SECONDS = 1.0

_log = logging.getLogger(__name__)


async def obtain_epoch(
    store: EpochStore,
    shard_id: str,
    provider: CapacityProvider,
    coordinator: Coordinator | None,
    on_wait: Callable[[str], None],
) -> int:
    """The epoch of this life, on the disk. Waits until those who must be asked have answered, and
    tells `on_wait` for what.

    Fenced when the shard was removed; BigFleetError when the store cannot be used.
    """
    if store.last():
        return store.next_epoch()
    problem = ""
    while True:
        try:
            reported = await coordinator.claim_epoch(shard_id) if coordinator else 0
            return store.next_epoch(await provider.claim_epoch(shard_id, max(1, reported)))
        except Unavailable as error:
            why = f"has no epoch yet, as its state directory was empty: {error}"
            on_wait(why)
            if why != problem:
                _log.warning("shard %s %s", shard_id, why)
            problem = why
        await asyncio.sleep(RETRY_INTERVAL_SECONDS)


class FenceSequence:
    """Sequence numbers are given out at sending, so that a later order always outranks."""

    def __init__(self, shard_id: str, epoch: int) -> None:
        self.shard_id, self.epoch = shard_id, epoch
        self._sequence = itertools.count(1)

    def next(self) -> Fence:
        """A fence newer than all before."""
        return Fence(self.shard_id, self.epoch, next(self._sequence))
