"""Quotas: how many machines of a provider's region each shard may have purchased. Pure.

A quota is divided among the shards, and its parts may change. At no time may all shards together
use more than the whole: a part is raised only by what others have confirmed to do without. So each
shard has, beside its part, an allowance: what it may still be using. It falls when the shard has
accepted its smaller part and holds no more than that, and only what is free then goes to others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.errors import InvalidInput, UnknownObject
from bigfleet.services.coordinator.domains import NewInstructionId
from bigfleet.services.coordinator.quota_moves import QuotaMove
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Quota, RowChanges, put


def replaced(
    registry: Registry, quota: wire.QuotaAllocation, instruction_id: NewInstructionId
) -> RowChanges:
    """Replace an allocation; no change if it is the same. The first one of a region takes effect at
    once, as the shards were not limited before.

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
    if known is None:
        return put(Quota(quota.provider, quota.region, per_shard, instruction_id()))
    if known.per_shard == per_shard:
        return {}
    changed = msgspec.structs.replace(
        known, per_shard=per_shard, allowed=known.allowances, reasons={}
    )
    return _change(registry, known, changed, instruction_id)


def moved(
    registry: Registry, moves: Sequence[QuotaMove], instruction_id: NewInstructionId
) -> RowChanges:
    """Change the parts of givers and receivers; the latter are told when the former have
    confirmed.
    """
    changes: RowChanges = {}
    for row in registry.quotas.values():
        own = [move for move in moves if move.quota == row.name]
        if not own:
            continue
        per_shard, reasons = dict(row.per_shard), dict(row.reasons)
        for move in own:
            per_shard[move.giver] = per_shard.get(move.giver, 0) - move.machines
            per_shard[move.to] = per_shard.get(move.to, 0) + move.machines
            reasons |= {move.giver: move.reason, move.to: move.reason}
        changed = msgspec.structs.replace(
            row, per_shard=per_shard, allowed=row.allowances, reasons=reasons
        )
        changes |= _change(registry, row, changed, instruction_id)
    return changes


def confirmed(
    registry: Registry,
    report: wire.ShardReport,
    accepted_ids: Collection[str],
    instruction_id: NewInstructionId,
) -> RowChanges:
    """The allowances after a shard's report: it uses what it was told last once it has accepted
    that, or what it holds if that is more.
    """
    changes: RowChanges = {}
    held = {(use.provider, use.region): use.held for use in report.quotas}
    for row in registry.quotas.values():
        is_accepted = row.instruction_for(report.shard_id) in accepted_ids
        if is_accepted and row.name in held:
            uses = max(row.slice_of(report.shard_id), held[row.name])
            allowed = {**row.allowances, report.shard_id: uses}
            changed = msgspec.structs.replace(row, allowed=allowed)
            changes |= _change(registry, row, changed, instruction_id)
    return changes


def _change(
    registry: Registry, before: Quota, after: Quota, instruction_id: NewInstructionId
) -> RowChanges:
    """`after` with allowances raised as far as the whole permits; new instructions if a shard is
    to use another number of machines.
    """
    removed = {shard.id for shard in registry.shards.values() if shard.removed}
    allowed = _raised(
        after.per_shard, {s: n for s, n in after.allowances.items() if n and s not in removed}
    )
    after = msgspec.structs.replace(after, allowed=allowed)
    shards = {*before.per_shard, *after.per_shard} - removed
    if any(before.slice_of(shard) != after.slice_of(shard) for shard in shards):
        after = msgspec.structs.replace(after, instruction_id=instruction_id())
    return {} if after == before else put(after)


def _raised(per_shard: Mapping[str, int], allowed: Mapping[str, int]) -> Mapping[str, int]:
    free = sum(per_shard.values()) - sum(allowed.values())
    result = dict(allowed)
    for shard, part in sorted(per_shard.items()):
        more = min(free, part - result.get(shard, 0))
        if more > 0:
            result[shard] = result.get(shard, 0) + more
            free -= more
    return dict(sorted(result.items()))
