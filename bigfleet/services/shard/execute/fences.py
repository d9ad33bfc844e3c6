"""The fence that every order carries: this shard, this start, and a number that only grows."""

from __future__ import annotations

import itertools

from bigfleet.ports.provider import Fence


class FenceSequence:
    """Sequence numbers are given out at sending, so that a later order always outranks."""

    def __init__(self, shard_id: str, epoch: int) -> None:
        self.shard_id, self.epoch = shard_id, epoch
        self._sequence = itertools.count(1)

    def next(self) -> Fence:
        """A fence newer than all before."""
        return Fence(self.shard_id, self.epoch, next(self._sequence))
