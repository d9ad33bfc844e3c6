"""Fences of orders: shard id, epoch of this process, and an increasing sequence number."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence

from bigfleet.model.errors import Unavailable
from bigfleet.ports.coordinator import Coordinator
from bigfleet.ports.provider import CapacityProvider, Fence
from bigfleet.ports.store import EpochStore

RETRY_INTERVAL_SECONDS = 1.0

_LOG = logging.getLogger(__name__)


async def obtain_epoch(
    store: EpochStore,
    shard_id: str,
    providers: Sequence[CapacityProvider],
    coordinator: Coordinator | None,
    on_wait: Callable[[str], None],
) -> int:
    """A new epoch, saved on disk. With an empty store, wait until all providers and the coordinator
    have answered; `on_wait` is called with the reason.

    Fenced when the shard was removed; BigFleetError when the store cannot be used.
    """
    if store.last():
        return store.next_epoch()
    problem = ""
    while True:
        try:
            reported = await coordinator.claim_epoch(shard_id) if coordinator else 0
            return store.next_epoch(await _claim(providers, shard_id, max(1, reported)))
        except Unavailable as error:
            why = f"waiting for an epoch (empty state directory): {error}"
            on_wait(why)
            if why != problem:
                _LOG.warning("shard %s: %s", shard_id, why)
            problem = why
        await asyncio.sleep(RETRY_INTERVAL_SECONDS)


async def _claim(providers: Sequence[CapacityProvider], shard_id: str, at_least: int) -> int:
    """An epoch that all providers accept, and none that any of them has seen.

    The last one to be asked knows the largest, so that all others are told of it.
    """
    epoch = at_least
    for provider in (*providers, *providers[:-1]):
        epoch = await provider.claim_epoch(shard_id, epoch)
    return epoch


class FenceSequence:
    """Assigns sequence numbers when orders are sent, so that a later order outranks all before."""

    def __init__(self, shard_id: str, epoch: int) -> None:
        self.shard_id, self.epoch = shard_id, epoch
        self._sequence = itertools.count(1)

    def next(self) -> Fence:
        """A fence newer than all before it."""
        return Fence(self.shard_id, self.epoch, next(self._sequence))
