"""The queue of messages to one operator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from bigfleet.api.v1alpha1.shard_pb2 import ShardMessage

# Unread answers to one operator. Each of its messages causes at most one.
MAX_UNKEYED = 1000


class Outbox:
    """A queue in which a message replaces a queued one with the same key, in its place.

    So a slow operator gets the latest state of each machine, and the queue is bounded by the number
    of machines, by the pending requests, and by `MAX_UNKEYED` if readers use `wait_for_space`.
    """

    def __init__(self) -> None:
        self._sending_since: float | None = None
        self._waiting: dict[object, ShardMessage] = {}
        self._changed = asyncio.Event()
        self._closed = False
        self._unkeyed = 0
        self._has_space = asyncio.Event()
        self._has_space.set()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: ShardMessage, supersedes_key: str = "") -> None:
        """Queue `message`; without a key it replaces nothing. A closed outbox drops it."""
        if self._closed:
            return
        self._waiting[supersedes_key or object()] = message
        self._changed.set()
        if not supersedes_key:
            self._unkeyed += 1
            if self._unkeyed >= MAX_UNKEYED:
                self._has_space.clear()

    def withdraw(self, supersedes_key: str) -> None:
        """Remove the queued message with this key, if there is one."""
        self._waiting.pop(supersedes_key, None)

    @property
    def stuck_seconds(self) -> float:
        """For how long the operator has not read the message that is being sent."""
        since = self._sending_since
        return 0.0 if since is None else asyncio.get_running_loop().time() - since

    async def wait_for_space(self) -> None:
        """Return once fewer than `MAX_UNKEYED` answers are queued, or the outbox is closed."""
        await self._has_space.wait()

    def close(self) -> None:
        """End `drain` after what is queued now."""
        self._closed = True
        self._changed.set()
        self._has_space.set()

    def drop(self) -> None:
        """Drop all queued messages."""
        self._waiting.clear()

    async def drain(self) -> AsyncGenerator[ShardMessage, None]:
        """Messages as they come, until `close`."""
        while True:
            while self._waiting:
                key = next(iter(self._waiting))
                if not isinstance(key, str):
                    self._unkeyed -= 1
                    self._has_space.set()
                message = self._waiting.pop(key)
                self._sending_since = asyncio.get_running_loop().time()
                yield message
                self._sending_since = None
            if self._closed:
                return
            self._changed.clear()
            await self._changed.wait()
