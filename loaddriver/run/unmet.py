"""What the shard itself says that it cannot cover: the needs that lack machines, and why."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio

from bigfleet.api import transport
from bigfleet.api.auth.identity import Identity
from bigfleet.api.v1alpha1 import shardread_pb2 as wire
from bigfleet.api.v1alpha1.shardread_pb2_grpc import ShardReadStub
from loaddriver.judge.facts import Shortfall
from loaddriver.plan.manifests import INSTANCE_TYPE_KEY
from loaddriver.run.bigfleet_roles import LISTEN
from loaddriver.substrates.base import Endpoint

# A live shard answers at once; one that is gone must not hold up the report.
_RPC_TIMEOUT_SECONDS = 5.0


async def unmet_needs(shards: Sequence[Endpoint]) -> tuple[Shortfall, ...] | None:
    """The needs that all supply does not cover, as of each shard's last cycle; None if there is no
    shard or one does not answer. Those of the highest priority come first.
    """
    answers = await asyncio.gather(*(_needs(shard) for shard in shards))
    if not answers or None in answers:
        return None
    short = [view for views in answers for view in views or () if not view.satisfied]
    return tuple(_shortfall(view) for view in sorted(short, key=lambda v: -v.need.priority))


async def _needs(shard: Endpoint) -> list[wire.NeedView] | None:
    if LISTEN not in shard.addresses:
        return None
    identity = Identity(shard.readonly_identity) if shard.readonly_identity else None
    try:
        async with transport.channel(shard.addresses[LISTEN], identity, "shard") as channel:
            stub: Any = ShardReadStub(channel)
            answer = stub.InspectNeeds(wire.InspectNeedsRequest(), timeout=_RPC_TIMEOUT_SECONDS)
            return [each.need async for each in answer if each.HasField("need")]
    except grpc.aio.AioRpcError:
        return None


def unmet_counts(shortfalls: Sequence[Shortfall] | None) -> dict[str, Any]:
    """For the summary: how many needs are unmet, in all and by reason; None where nobody said."""
    if shortfalls is None:
        return {"needsUnmetAtEnd": None}
    reasons = Counter(each.kind for each in shortfalls)
    return {"needsUnmetAtEnd": len(shortfalls), "needsUnmetByReason": dict(sorted(reasons.items()))}


def _shortfall(view: wire.NeedView) -> Shortfall:
    types = {
        value
        for each in view.need.requirements
        if each.key == INSTANCE_TYPE_KEY
        for value in each.values
    }
    return Shortfall(
        cluster=view.cluster_id,
        instance_types=tuple(sorted(types)),
        missing=dict(view.residual_deficit.resources),
        reason=view.unmet_reason_text,
        kind=_camel(wire.NeedView.UnmetReason.Name(view.unmet_reason)),
    )


def _camel(name: str) -> str:
    first, *rest = name.casefold().split("_")
    return first + "".join(word.capitalize() for word in rest)
