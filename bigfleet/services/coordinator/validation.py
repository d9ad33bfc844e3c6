"""Validation of requests: every error names the object, the field and what is accepted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.domain import MAX_NAME_LENGTH, is_name
from bigfleet.model.errors import InvalidInput
from bigfleet.model.report_limits import (
    MAX_DRAINED_MACHINES,
    MAX_HELPFUL_DOMAINS,
    MAX_MOVABLE_DOMAINS,
    MAX_OUT_OF_DOMAIN,
    MAX_QUOTA_SHORTAGES,
    MAX_REMOVALS,
    MAX_SHORTFALLS,
    MAX_SPLITS,
    MAX_UNOWNED_DOMAINS,
)

MAX_PROVIDERS = 200
MAX_QUOTAS = 200
MAX_DOMAIN_KEYS = 8
MAX_ACKS = 1000
_MAX_SUMMARY_BYTES = 64 * 1024


def name(what: str, value: str) -> None:
    """InvalidInput unless `value` is a valid name."""
    if not value:
        raise InvalidInput(what, value, "is empty")
    if len(value) > MAX_NAME_LENGTH:
        raise InvalidInput(what, f"{value[:20]}...", f"is longer than {MAX_NAME_LENGTH} characters")
    if not is_name(value):
        raise InvalidInput(what, value, "has unprintable characters or surrounding spaces")


def address(what: str, value: str) -> None:
    """InvalidInput unless `value` is HOST:PORT."""
    host, _, port = value.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 65536):
        raise InvalidInput(what, value, "is not HOST:PORT")


def domain(topology_key: str, topology_value: str) -> tuple[str, str]:
    """The domain's name; both parts are empty for machines without a domain."""
    if topology_key or topology_value:
        name("topology_key", topology_key)
        name("topology_value", topology_value)
    return topology_key, topology_value


def report(message: wire.ShardReport) -> None:
    """InvalidInput for a report with invalid fields."""
    name("shard_id", message.shard_id)
    who = f"shard {message.shard_id}"
    address(f"{who}: shard_address", message.shard_address)
    if message.shard_epoch < 1:
        raise InvalidInput(f"{who}: shard_epoch", message.shard_epoch, "is not > 0")
    _at_most(f"{who}: shortfalls", len(message.shortfalls), MAX_SHORTFALLS)
    _at_most(f"{who}: unowned_domains", len(message.unowned_domains), MAX_UNOWNED_DOMAINS)
    _at_most(
        f"{who}: out_of_domain_machines", len(message.out_of_domain_machines), MAX_OUT_OF_DOMAIN
    )
    _at_most(f"{who}: splits", len(message.splits), MAX_SPLITS)
    _at_most(f"{who}: domain_keys", len(message.domain_keys), MAX_DOMAIN_KEYS)
    _at_most(f"{who}: removals", len(message.removals), MAX_REMOVALS)
    _at_most(f"{who}: movable_domains", len(message.movable_domains), MAX_MOVABLE_DOMAINS)
    _at_most(f"{who}: providers", len(message.providers), MAX_PROVIDERS)
    _at_most(f"{who}: instruction_acks", len(message.instruction_acks), MAX_ACKS)
    _shortfalls(who, message.shortfalls)
    _quotas(who, message.quotas)
    summary_bytes = message.summary.ByteSize()
    _at_most(f"{who}: bytes of summary", summary_bytes, _MAX_SUMMARY_BYTES)
    _counts(who, message)
    for seen in message.unowned_domains:
        domain(seen.topology_key, seen.topology_value)
    for movable in message.movable_domains:
        domain(movable.topology_key, movable.topology_value)
    for split in message.splits:
        domain(split.topology_key, split.topology_value)
    for removal in message.removals:
        name(f"{who}: removal: cluster_id", removal.cluster_id)
    for provider in message.providers:
        name(f"{who}: provider name", provider.name)
        if provider.region:
            name(f"{who}: provider {provider.name}: region", provider.region)
        address(f"{who}: provider {provider.name}: address", provider.address)


def _quotas(who: str, uses: Sequence[wire.QuotaUse]) -> None:
    _at_most(f"{who}: quotas", len(uses), MAX_QUOTAS)
    for use in uses:
        _quota_name(who, use.provider, use.region)
        _not_negative(f"{who}: quotas", [use.machines, use.held])


def _shortfalls(who: str, shortfalls: Iterable[wire.Shortfall]) -> None:
    for shortfall in shortfalls:
        what = f"{who}: helpful domains of a shortfall of {shortfall.cluster_id}"
        _at_most(what, len(shortfall.helpful_domains), MAX_HELPFUL_DOMAINS)
        for helpful in shortfall.helpful_domains:
            domain(helpful.topology_key, helpful.topology_value)
            _at_most(f"{what}: machines", len(helpful.drained_machine_ids), MAX_DRAINED_MACHINES)
        what = f"{who}: quotas that a shortfall of {shortfall.cluster_id} lacks"
        _at_most(what, len(shortfall.quotas), MAX_QUOTA_SHORTAGES)
        for lack in shortfall.quotas:
            _quota_name(who, lack.provider, lack.region)
            _not_negative(what, [lack.machines])


def _quota_name(who: str, provider: str, region: str) -> None:
    name(f"{who}: quota provider", provider)
    if region:
        name(f"{who}: quota region", region)


def _counts(who: str, message: wire.ShardReport) -> None:
    summary = message.summary
    _not_negative(f"{who}: owned_domains", [message.owned_domains])
    _not_negative(f"{who}: shortfalls_left_out", [message.shortfalls_omitted])
    _not_negative(f"{who}: out_of_domain_machines_left_out", [message.out_of_domain_omitted])
    _not_negative(f"{who}: summary", [summary.total_machines, summary.free_machines])
    _not_negative(f"{who}: summary by type", summary.per_instance_type_counts.values())
    _not_negative(f"{who}: summary by zone", summary.per_zone_counts.values())
    _not_negative(f"{who}: removals", (each.machines_left for each in message.removals))
    _not_negative(f"{who}: machines", (seen.machines for seen in message.unowned_domains))


def quota(message: wire.QuotaAllocation) -> None:
    """InvalidInput for an allocation with invalid fields."""
    name("quota.provider", message.provider)
    if message.region:
        name("quota.region", message.region)
    for shard, machines in message.per_shard.items():
        name("quota.per_shard", shard)
        _not_negative(f"quota.per_shard[{shard}]", [machines])


def _not_negative(what: str, counts: Iterable[int]) -> None:
    for count in counts:
        if count < 0:
            raise InvalidInput(what, count, "is negative")


def _at_most(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise InvalidInput(what, count, f"exceeds the limit of {limit} per report")
