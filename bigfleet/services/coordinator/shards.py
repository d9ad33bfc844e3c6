"""Registration of shards, and validation of their epochs. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.errors import Fenced, InvalidInput, UnknownObject
from bigfleet.ports.provider import EPOCHS_SKIPPED
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Provider, RowChanges, Shard, put


def registered(registry: Registry, report: wire.ShardReport, now_unix_ns: int) -> RowChanges:
    """Changes to the reporting shard's own row; the first report registers the shard.

    Fenced for a process that has been replaced or a shard that was removed. InvalidInput when two
    processes report with one epoch, or when the shard's domain keys differ from the other shards'.
    """
    fresh = Shard(
        report.shard_id,
        report.shard_address,
        report.shard_epoch,
        now_unix_ns,
        domain_keys=tuple(report.domain_keys),
    )
    row = registry.shards.get(report.shard_id)
    if row is None:
        _reject_other_domain_keys(registry, fresh)
        return put(fresh)
    _reject_stale(row, report)
    if row.domain_keys != fresh.domain_keys:
        _reject_other_domain_keys(registry, fresh)
    if row.epoch == fresh.epoch and row.address not in ("", fresh.address):
        what = f"shard {row.id}: shard_address"
        hint = f"differs from {row.address}, which epoch {row.epoch} reported before; do two "
        raise InvalidInput(what, fresh.address, hint + "processes share one state directory?")
    updated = msgspec.structs.replace(
        row, epoch=fresh.epoch, address=fresh.address, domain_keys=fresh.domain_keys
    )
    return {} if updated == row else put(updated)


def issue_epoch(registry: Registry, shard_id: str) -> RowChanges:
    """A new epoch for a shard that has lost its own; nothing for one that never reported.

    Fenced for one that was removed.
    """
    row = registry.shards.get(shard_id)
    if row is None:
        return {}
    _reject_removed(row)
    return put(msgspec.structs.replace(row, epoch=row.epoch + EPOCHS_SKIPPED, address=""))


class HasLeft(Fenced):
    """The shard was removed, and owns nothing any more: its process only needs to be stopped."""


def _reject_removed(row: Shard, error: type[Fenced] = Fenced) -> None:
    if row.removed:
        raise error(
            f"shard {row.id} was removed from the fleet and must not act; to use its host again, "
            "start a shard with another id and an empty state directory"
        )


def _reject_stale(row: Shard, report: wire.ShardReport) -> None:
    _reject_removed(row, Fenced if report.owned_domains else HasLeft)
    if report.shard_epoch < row.epoch:
        raise Fenced(
            f"shard {row.id}: epoch {report.shard_epoch} has been replaced by epoch {row.epoch} "
            "and must stop. If its state directory is an old copy, start it with an empty one"
        )


def _reject_other_domain_keys(registry: Registry, shard: Shard) -> None:
    """A rack of one shard would lie in a zone of another, and both would act on it."""
    what, stated_keys = f"shard {shard.id}: domain_keys", ", ".join(shard.domain_keys)
    for other in registry.known_shards():
        if other.domain_keys == shard.domain_keys:
            continue
        other_keys = ", ".join(other.domain_keys)
        if other.id != shard.id:
            hint = f"differ from those of shard {other.id}, {other_keys}; "
            raise InvalidInput(what, stated_keys, hint + "start all shards with the same --domains")
        if owned := registry.load(shard.id).domains:
            hint = f"cannot change while it owns {owned} domains by {other_keys}; "
            raise InvalidInput(what, stated_keys, hint + "start it with the previous --domains")


def providers_seen(registry: Registry, report: wire.ShardReport, live: Iterable[str]) -> RowChanges:
    """Providers that a report adds or updates.

    Where two shards disagree, the first reporter's entry stays while that shard is live;
    otherwise each report would overwrite the other's.
    """
    changes: RowChanges = {}
    other_live = set(live) - {report.shard_id}
    for entry in report.providers:
        known = registry.providers.get((entry.name, entry.region))
        row = Provider(entry.name, entry.address, entry.region, report.shard_id)
        if known != row and (known is None or known.reported_by not in other_live):
            changes[row.key] = row
    return changes


def leaving(registry: Registry, shard_id: str) -> RowChanges:
    """Start the removal of a live shard. UnknownObject for one that never reported."""
    row = _known(registry, shard_id)
    if row.leaving or row.removed:
        return {}
    return put(msgspec.structs.replace(row, leaving=True))


def removed(registry: Registry, shard_id: str) -> RowChanges:
    """Bar a shard permanently, once it owns nothing or cannot act."""
    row = _known(registry, shard_id)
    if row.removed:
        return {}
    return put(msgspec.structs.replace(row, leaving=False, removed=True))


def _known(registry: Registry, shard_id: str) -> Shard:
    row = registry.shards.get(shard_id)
    if row is None:
        raise UnknownObject(f"no shard {shard_id}; `fleet shards` lists them")
    return row
