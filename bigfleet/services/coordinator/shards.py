"""Which shards there are, and which of their reports count. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.domain import BY_RACK
from bigfleet.model.errors import Fenced, InvalidInput, UnknownObject
from bigfleet.ports.provider import EPOCHS_SKIPPED
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Provider, RowChanges, Shard, put


def registered(registry: Registry, report: wire.ShardReport, now_unix_ns: int) -> RowChanges:
    """What a report changes of its shard's row: a shard registers itself.

    Fenced for a process that has been replaced, or a shard that was removed; InvalidInput when two
    processes claim to be one start of one shard, or for one that divides the fleet otherwise than
    the others.
    """
    row, keys = registry.shards.get(report.shard_id), tuple(report.domain_keys)
    if row is None:
        _refuse_other_domains(registry, report.shard_id, keys)
        return put(
            Shard(
                report.shard_id,
                report.shard_address,
                report.shard_epoch,
                now_unix_ns,
                domain_keys=keys,
            )
        )
    _refuse_stale(row, report)
    if row.domain_keys != keys:
        _refuse_other_domains(registry, report.shard_id, keys)
    if (row.epoch, row.address) == (report.shard_epoch, report.shard_address):
        return (
            {} if row.domain_keys == keys else put(msgspec.structs.replace(row, domain_keys=keys))
        )
    if row.epoch == report.shard_epoch and row.address:
        what = f"shard {row.id}: shard_address"
        hint = f"is not {row.address}, whence epoch {row.epoch} reported before; do two processes "
        raise InvalidInput(what, report.shard_address, hint + "share one state directory?")
    fresh = msgspec.structs.replace(
        row, epoch=report.shard_epoch, address=report.shard_address, domain_keys=keys
    )
    return put(fresh)


def issue_epoch(registry: Registry, shard_id: str) -> RowChanges:
    """A new epoch for a shard that has lost its own; nothing for one that never reported.

    Fenced for one that was removed.
    """
    row = registry.shards.get(shard_id)
    if row is None:
        return {}
    _refuse_removed(row)
    return put(msgspec.structs.replace(row, epoch=row.epoch + EPOCHS_SKIPPED, address=""))


def _refuse_removed(row: Shard) -> None:
    if row.removed:
        raise Fenced(
            f"shard {row.id} was removed from the fleet and must not act; to use its host again, "
            "start a shard with another id and an empty state directory"
        )


def _refuse_stale(row: Shard, report: wire.ShardReport) -> None:
    _refuse_removed(row)
    if report.shard_epoch < row.epoch:
        raise Fenced(
            f"shard {row.id}: epoch {row.epoch} has reported already; epoch {report.shard_epoch} "
            "has been replaced and must stop. If its state directory is an old copy, start it with "
            "an empty one"
        )


def _refuse_other_domains(registry: Registry, shard_id: str, keys: tuple[str, ...]) -> None:
    """A rack that one shard owns would be in a zone that another one owns, and both would act."""
    what, stated_keys = f"shard {shard_id}: domain_keys", ", ".join(keys or BY_RACK)
    for other in registry.known_shards():
        if tuple(other.domain_keys or BY_RACK) == tuple(keys or BY_RACK):
            continue
        theirs = ", ".join(other.domain_keys or BY_RACK)
        if other.id != shard_id:
            hint = f"are not those of shard {other.id}, {theirs}; start all with the same --domains"
            raise InvalidInput(what, stated_keys, hint)
        if owned := registry.load(shard_id).domains:
            hint = f"cannot change while it owns {owned} domains by {theirs}; start it as before"
            raise InvalidInput(what, stated_keys, hint)


def providers_seen(registry: Registry, report: wire.ShardReport, live: Iterable[str]) -> RowChanges:
    """Providers that a report brings or corrects.

    Where two shards disagree, the one that named the provider first is believed as long as it
    lives; otherwise each report would overwrite the other's.
    """
    changes: RowChanges = {}
    believed = set(live) - {report.shard_id}
    for entry in report.providers:
        known = registry.providers.get((entry.name, entry.region))
        row = Provider(entry.name, entry.address, entry.region, report.shard_id)
        if known != row and (known is None or known.reported_by not in believed):
            changes[row.key] = row
    return changes


def leaving(registry: Registry, shard_id: str) -> RowChanges:
    """Ask a live shard to give everything up. UnknownObject for one that never reported."""
    row = _known(registry, shard_id)
    if row.leaving or row.removed:
        return {}
    return put(msgspec.structs.replace(row, leaving=True))


def removed(registry: Registry, shard_id: str) -> RowChanges:
    """Bar a shard for good: it holds nothing any more, or cannot act."""
    row = _known(registry, shard_id)
    if row.removed:
        return {}
    return put(msgspec.structs.replace(row, leaving=False, removed=True))


def _known(registry: Registry, shard_id: str) -> Shard:
    row = registry.shards.get(shard_id)
    if row is None:
        raise UnknownObject(f"no shard {shard_id}; `fleet shards` lists them")
    return row
