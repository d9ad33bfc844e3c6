"""Effects of a shard's acknowledgements of its instructions. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.services.coordinator import domains
from bigfleet.services.coordinator.domain_lifecycle import DomainState
from bigfleet.services.coordinator.domains import NewInstructionId
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Domain, RowChanges, put

_AGAIN = "/again"


def accepted(report: wire.ShardReport) -> Iterator[str]:
    """Ids of the instructions that the shard has carried out."""
    for ack in report.instruction_acks:
        if ack.outcome == wire.InstructAck.ACCEPTED:
            yield ack.instruction_id


def remembered(registry: Registry, shard: str, accepted_ids: Collection[str]) -> set[str]:
    """Those of the accepted instructions whose acceptance no row shows: of the quotas as they are
    now, and repeated assignments.
    """
    quotas = {quota.instruction_for(shard) for quota in registry.quotas.values()}
    return {each for each in accepted_ids if each in quotas or each.endswith(_AGAIN)}


def rejected(report: wire.ShardReport) -> Iterator[wire.InstructAck]:
    """Acknowledgements other than ACCEPTED; their instructions stay pending."""
    return (a for a in report.instruction_acks if a.outcome != wire.InstructAck.ACCEPTED)


def apply_acks(
    registry: Registry, report: wire.ShardReport, instruction_id: NewInstructionId
) -> RowChanges:
    """Changes to domains that the shard has taken or released; FAILED ones get a new instruction.

    Acknowledgements of superseded instructions are ignored. Stale ones are repeated unchanged.
    """
    changes: RowChanges = {}
    unacknowledged = registry.unacknowledged(report.shard_id)
    for ack in report.instruction_acks:
        domain = unacknowledged.get(ack.instruction_id)
        if domain is None:
            continue
        if ack.outcome == wire.InstructAck.FAILED:
            changes |= _after_failure(domain, instruction_id)
        elif ack.outcome == wire.InstructAck.ACCEPTED:
            changes |= _after_acceptance(registry, domain, instruction_id)
    return changes


def _after_failure(domain: Domain, instruction_id: NewInstructionId) -> RowChanges:
    if domain.drained:
        return domains.refused(domain)
    # A shard answers a repeated instruction as it did the first time.
    return put(msgspec.structs.replace(domain, instruction_id=instruction_id()))


def _after_acceptance(
    registry: Registry, domain: Domain, instruction_id: NewInstructionId
) -> RowChanges:
    if domain.state is DomainState.ASSIGNING:
        return domains.taken(domain)
    return domains.released(registry, domain, instruction_id)


def lost_domains(
    registry: Registry, report: wire.ShardReport, reassigned_ids: Collection[str]
) -> list[Domain]:
    """Domains to assign to a shard again, because it owns fewer than it accepted.

    It was started with another state directory, or on another host. No other shard owns them.
    """
    if lost_domain_count(registry, report) <= 0:
        return []
    return [
        domain
        for domain in registry.domains_of(report.shard_id)
        if domain.state is DomainState.OWNED and reassignment_id(domain) not in reassigned_ids
    ]


def lost_domain_count(registry: Registry, report: wire.ShardReport) -> int:
    """Number of domains that a shard accepted and does not own."""
    load, unacknowledged = registry.load(report.shard_id), registry.unacknowledged(report.shard_id)
    return load.domains - len(unacknowledged) - report.owned_domains


def surplus_domains(registry: Registry, report: wire.ShardReport) -> int:
    """Number of domains that a shard owns beyond those assigned to it."""
    return max(0, report.owned_domains - registry.load(report.shard_id).domains)


def reassignment_id(domain: Domain) -> str:
    """Id of the instruction that assigns a domain to its shard again."""
    return f"{domain.instruction_id}{_AGAIN}"
