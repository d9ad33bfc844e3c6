"""Quotas: how many machines of a provider's region each shard may have purchased. Pure."""

from __future__ import annotations

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.errors import InvalidInput, UnknownObject
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Quota, RowChanges, put


def replaced(registry: Registry, quota: wire.QuotaAllocation, instruction_id: str) -> RowChanges:
    """Replace an allocation; no change if it is the same.

    UnknownObject for a shard that never reported, InvalidInput for one that was removed.
    """
    for shard_id in quota.per_shard:
        shard = registry.shards.get(shard_id)
        if shard is None:
            raise UnknownObject(f"quota names shard {shard_id}, which has never reported")
        if shard.removed:
            raise InvalidInput("quota.per_shard", shard_id, "was removed from the fleet")
    per_shard = dict(sorted(quota.per_shard.items()))
    known = registry.quotas.get((quota.provider, quota.region))
    if known is not None and known.per_shard == per_shard:
        return {}
    return put(Quota(quota.provider, quota.region, per_shard, instruction_id))
