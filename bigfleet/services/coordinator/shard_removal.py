"""Removal of a shard: a live one releases everything first, a dead one is barred. Pure."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from bigfleet.services.coordinator import clusters, domains, shards
from bigfleet.services.coordinator.domains import NewInstructionId
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import RowChanges, put


def next_removal_step(
    registry: Registry,
    shard: str,
    limit: int,
    instruction_id: NewInstructionId,
    candidates: Collection[str] = (),
) -> RowChanges:
    """The next step of a live shard's removal; none while it still has to release domains. They go
    to the `candidates`.
    """
    row = registry.shards.get(shard)
    if row is None or not row.leaving:
        return {}
    changes = domains.release_all(registry, shard, limit, instruction_id, candidates)
    changes |= clusters.release_clusters(registry, shard, limit - len(changes))
    if not changes and registry.load(shard).domains == 0:
        return shards.removed(registry, shard)
    return changes


def orphaned_rows(
    registry: Registry,
    limit: int,
    instruction_id: NewInstructionId,
    candidates: Collection[str] = (),
) -> RowChanges:
    """Up to `limit` rows of removed shards. Domains are assigned to their transfer target, else to
    the `candidates`; without any they are free, like clusters. What the shards had lent stays
    where it is, for good.
    """
    gone = {row.id for row in registry.shards.values() if row.removed and _holds(registry, row.id)}
    changes: RowChanges = {}
    if not gone:
        return changes
    orphans = [domain for domain in registry.domains.values() if domain.shard in gone][:limit]
    changes |= domains.passed_on(registry, orphans, instruction_id, candidates)
    for domain in registry.domains.values():
        if domain.shard not in gone and domain.home in gone and len(changes) < limit:
            home = domain.to if _remains(registry, domain.to) else domain.shard
            changes |= put(msgspec.structs.replace(domain, home=home))
    for cluster in registry.clusters.values():
        if cluster.shard in gone and len(changes) < limit:
            changes[cluster.key] = None
    return changes


def _remains(registry: Registry, shard: str) -> bool:
    row = registry.shards.get(shard)
    return row is not None and not row.removed


def _holds(registry: Registry, shard: str) -> bool:
    load = registry.load(shard)
    return load.domains > 0 or load.clusters > 0 or registry.home_load(shard).domains > 0
