"""What a shard's answers to its orders mean. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.services.coordinator import domains
from bigfleet.services.coordinator.domain_lifecycle import DomainState
from bigfleet.services.coordinator.domains import NewOrder
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Domain, RowChanges, put


def accepted(report: wire.ShardReport) -> Iterator[str]:
    """Ids of the orders that the shard has carried out."""
    for ack in report.instruction_acks:
        if ack.outcome == wire.InstructAck.ACCEPTED:
            yield ack.instruction_id


def refused(report: wire.ShardReport) -> Iterator[wire.InstructAck]:
    """Answers that say no, for whatever reason; the orders stay pending."""
    return (a for a in report.instruction_acks if a.outcome != wire.InstructAck.ACCEPTED)


def settled(registry: Registry, report: wire.ShardReport, order: NewOrder) -> RowChanges:
    """Domains that the shard has taken or released, or could not: those are ordered anew.

    Answers to superseded orders mean nothing. What was refused as stale is repeated as it is.
    """
    changes: RowChanges = {}
    unsettled = registry.unsettled(report.shard_id)
    for ack in report.instruction_acks:
        domain = unsettled.get(ack.instruction_id)
        if domain is None:
            continue
        if ack.outcome == wire.InstructAck.FAILED:
            # A shard gives the same answer to the same order for ever.
            changes |= put(msgspec.structs.replace(domain, order=order()))
        elif ack.outcome == wire.InstructAck.ACCEPTED:
            changes |= _carried_out(registry, domain, order)
    return changes


def _carried_out(registry: Registry, domain: Domain, order: NewOrder) -> RowChanges:
    if domain.state is DomainState.ASSIGNING:
        return domains.taken(domain)
    return domains.released(registry, domain, order)


def forgotten(
    registry: Registry, report: wire.ShardReport, reminded: Collection[str]
) -> list[Domain]:
    """Domains to remind a shard of, because it has fewer than it once accepted.

    It was started with another state directory, or on another host. Nobody else has them.
    """
    if missing(registry, report) <= 0:
        return []
    return [
        domain
        for domain in registry.domains_of(report.shard_id)
        if domain.state is DomainState.OWNED and reminder(domain) not in reminded
    ]


def missing(registry: Registry, report: wire.ShardReport) -> int:
    """How many domains a shard accepted and does not have."""
    load, unsettled = registry.load(report.shard_id), registry.unsettled(report.shard_id)
    return load.domains - len(unsettled) - report.owned_domains


def unexplained(registry: Registry, report: wire.ShardReport) -> int:
    """How many domains a shard has beyond all that it may have been given."""
    return max(0, report.owned_domains - registry.load(report.shard_id).domains)


def reminder(domain: Domain) -> str:
    """The id of the order that reminds a domain's shard of it."""
    return f"{domain.order}/again"
