"""Pending instructions of a shard, derived from the rows for each answer, never queued. Pure.

An instruction keeps its id until its shard has acknowledged it, also under the next leader, so
that a shard can tell a repetition from a new one. Its (term, sequence) is new in every message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.services.coordinator.acknowledgements import reassignment_id
from bigfleet.services.coordinator.domain_lifecycle import DomainState
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Domain

# Per answer; the rest follows with the next report.
MAX_INSTRUCTIONS = 500


def pending(
    registry: Registry, shard: str, accepted_ids: Collection[str], reassignments: Sequence[Domain]
) -> list[wire.CoordinatorInstruction]:
    """The next instructions for this shard, without term and sequence number.

    `accepted_ids` are the instructions that it has accepted from this leader, `reassignments` the
    domains that it should own but has lost.
    """
    instructions = chain(
        _domain_instructions(registry, shard),
        (_assignment(domain, reassignment_id(domain)) for domain in reassignments),
        _quota_instructions(registry, shard, accepted_ids),
    )
    return list(islice(instructions, MAX_INSTRUCTIONS))


def _domain_instructions(registry: Registry, shard: str) -> Iterator[wire.CoordinatorInstruction]:
    """Releases first: other shards wait for them."""
    unacknowledged = registry.unacknowledged(shard).values()
    for domain in unacknowledged:
        if domain.state is DomainState.RELEASING:
            yield _release(domain)
    for domain in unacknowledged:
        if domain.state is DomainState.ASSIGNING:
            yield _assignment(domain, domain.instruction_id)


def _release(domain: Domain) -> wire.CoordinatorInstruction:
    number = domain.instruction_id
    if domain.drained:
        drain = wire.CrossShardDrain(
            machine_ids=domain.drained,
            preemptor_priority=domain.drained_for_priority,
            topology_key=domain.topology_key,
            topology_value=domain.topology_value,
            reason=domain.reason,
        )
        return wire.CoordinatorInstruction(instruction_id=number, cross_shard_drain=drain)
    payload = wire.UnassignDomain(
        topology_key=domain.topology_key,
        topology_value=domain.topology_value,
        reason=domain.reason,
    )
    return wire.CoordinatorInstruction(instruction_id=number, unassign_domain=payload)


def _assignment(domain: Domain, instruction_id: str) -> wire.CoordinatorInstruction:
    payload = wire.AssignDomain(
        topology_key=domain.topology_key,
        topology_value=domain.topology_value,
        reason=domain.reason,
    )
    return wire.CoordinatorInstruction(instruction_id=instruction_id, assign_domain=payload)


def _quota_instructions(
    registry: Registry, shard: str, accepted_ids: Collection[str]
) -> Iterator[wire.CoordinatorInstruction]:
    for quota in registry.quotas.values():
        instruction_id = quota.instruction_for(shard)
        if instruction_id not in accepted_ids:
            payload = wire.QuotaSlice(
                provider=quota.provider,
                region=quota.region,
                machines=quota.slice_of(shard),
                reason=quota.reasons.get(shard, ""),
            )
            yield wire.CoordinatorInstruction(instruction_id=instruction_id, quota_slice=payload)
