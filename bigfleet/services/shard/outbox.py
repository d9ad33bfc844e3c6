"""What a shard has to tell one operator and has not told it yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from bigfleet.api.v1alpha1.shard_pb2 import ShardMessage


class Outbox:
    """A queue in which news replaces the undelivered older news of the same key, in its place.

    So a slow operator gets the newest state of each machine, and what waits for it is bounded by
    the number of machines.
    """

    def __init__(self) -> None:
        self._waiting: dict[object, ShardMessage] = {}
        self._changed = asyncio.Event()
        self._closed = False

    def put(self, message: ShardMessage, supersedes_key: str = "") -> None:
        """Queue `message`; without a key it replaces nothing. A closed outbox drops it."""
        if not self._closed:
            self._waiting[supersedes_key or object()] = message
            self._changed.set()

    def close(self) -> None:
        """End `drain` after what is queued now."""
        self._closed = True
        self._changed.set()

    async def drain(self) -> AsyncGenerator[ShardMessage, None]:
        """Messages as they come, until `close`."""
        while True:
            while self._waiting:
                yield self._waiting.pop(next(iter(self._waiting)))
            if self._closed:
                return
            self._changed.clear()
            await self._changed.wait()
