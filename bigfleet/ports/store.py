"""What a shard must not forget: how many times it has been started."""

from __future__ import annotations

from typing import Protocol


class EpochStore(Protocol):
    """Durable count of a shard's starts; the epoch in all its orders.

    Providers refuse orders of an epoch older than one they have seen, so two properties matter
    more than speed: an epoch is never handed out twice, and it never goes back.
    """

    def next_epoch(self) -> int:
        """One more than any epoch returned before, durable before this returns.

        Raises BigFleetError when the old value cannot be read or the new one cannot be made
        durable: a shard that guesses its epoch could be mistaken for its predecessor.
        """
        ...
