"""With which epoch a shard begins: the next one of its own, or one above all that others have seen.

An empty state directory means a shard that is new, or one that has lost its disk. Nobody but the
coordinator and the provider can tell. So both are asked before anything is ordered, and each gives
an epoch above those that it has seen of this shard. The coordinator gives none while another
process of the shard is alive. From the provider's answer on, that one could do nothing any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bigfleet.model.errors import Unavailable
from bigfleet.ports.coordinator import Coordinator
from bigfleet.ports.provider import CapacityProvider
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
