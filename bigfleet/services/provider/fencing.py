"""Who may still give orders: a replaced shard's are refused, machine by machine."""

from __future__ import annotations

from typing import NamedTuple

from bigfleet.model.errors import Fenced
from bigfleet.ports.provider import Fence


class FencingToken(NamedTuple):
    """Where an order stands among its shard's: epochs first, then sequence numbers in an epoch."""

    epoch: int
    sequence: int


_HINT = (
    "Whoever sent it has been replaced and must stop; a shard whose state directory is an old copy "
    "must be started with an empty one"
)


def check(
    fence: Fence, machine_id: str, newest: FencingToken | None, claimed: int = 0
) -> FencingToken:
    """The order's mark; Fenced unless newer than `newest`, that shard's newest for the machine, and
    of an epoch not older than the one that it has `claimed`.
    """
    token = FencingToken(fence.epoch, fence.sequence)
    if newest is not None and token <= newest:
        raise Fenced(
            f"machine {machine_id}: shard {fence.shard_id} has already sent epoch {newest.epoch} "
            f"sequence {newest.sequence}; epoch {token.epoch} sequence {token.sequence} "
            "is not newer."
            f" {_HINT}"
        )
    if token.epoch < claimed:
        raise Fenced(
            f"machine {machine_id}: shard {fence.shard_id} has begun anew with epoch {claimed}; "
            f"epoch {token.epoch} is older. {_HINT}"
        )
    return token
