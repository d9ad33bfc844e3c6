"""Fencing: rejects orders of a replaced shard, machine by machine."""

from __future__ import annotations

from typing import NamedTuple

from bigfleet.model.errors import Fenced
from bigfleet.ports.provider import Fence


class FencingToken(NamedTuple):
    """Position of an order among its shard's: epoch, then sequence number within the epoch."""

    epoch: int
    sequence: int


_HINT = (
    "The sender has been replaced and must stop; a shard whose state directory is an old copy must "
    "be started with an empty one"
)


def check(
    fence: Fence, machine_id: str, newest: FencingToken | None, claimed: int = 0
) -> FencingToken:
    """The order's fencing token. Fenced unless it is newer than `newest`, the shard's newest for
    the machine, and its epoch is not older than the one `claimed` last.
    """
    token = FencingToken(fence.epoch, fence.sequence)
    if newest is not None and token <= newest:
        raise Fenced(
            f"machine {machine_id}: shard {fence.shard_id} has already sent epoch {newest.epoch} "
            f"sequence {newest.sequence}; epoch {token.epoch} sequence {token.sequence} is not "
            f"newer. {_HINT}"
        )
    if token.epoch < claimed:
        raise Fenced(
            f"machine {machine_id}: shard {fence.shard_id} has restarted with epoch {claimed}; "
            f"epoch {token.epoch} is older. {_HINT}"
        )
    return token
