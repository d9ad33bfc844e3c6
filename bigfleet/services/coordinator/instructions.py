"""What a shard is yet to be told: worked out from the rows each time, never queued. Pure.

An order's id stays the same until its shard has answered it, also under the next leader, so that a
shard can tell a repeated order from a new one. Its (term, sequence) is fresh in every message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.services.coordinator.acknowledgements import reminder
from bigfleet.services.coordinator.domain_lifecycle import DomainState
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Domain, Quota

# In one answer; the rest follows with the next report.
MOST_INSTRUCTIONS = 500


def pending(
    registry: Registry, shard: str, done: Collection[str], reminders: Sequence[Domain]
) -> list[wire.CoordinatorInstruction]:
    """The next orders for this shard, without term and sequence number.

    `done` are the ids of orders that it has accepted from this leader, `reminders` domains that it
    should have and seems to have forgotten.
    """
    orders = chain(
        _releases_first(registry, shard),
        (_assignment(domain, reminder(domain)) for domain in reminders),
        _slices(registry, shard, done),
    )
    return list(islice(orders, MOST_INSTRUCTIONS))


def _releases_first(registry: Registry, shard: str) -> Iterator[wire.CoordinatorInstruction]:
    """Others wait for what is to be released."""
    unsettled = registry.unsettled(shard).values()
    for domain in unsettled:
        if domain.state is DomainState.RELEASING:
            payload = wire.UnassignDomain(
                topology_key=domain.topology_key, topology_value=domain.topology_value
            )
            yield wire.CoordinatorInstruction(instruction_id=domain.order, unassign_domain=payload)
    for domain in unsettled:
        if domain.state is DomainState.ASSIGNING:
            yield _assignment(domain, domain.order)


def _assignment(domain: Domain, order: str) -> wire.CoordinatorInstruction:
    payload = wire.AssignDomain(
        topology_key=domain.topology_key, topology_value=domain.topology_value
    )
    return wire.CoordinatorInstruction(instruction_id=order, assign_domain=payload)


def _slices(
    registry: Registry, shard: str, taken: Collection[str]
) -> Iterator[wire.CoordinatorInstruction]:
    for quota in registry.quotas.values():
        order = slice_order(quota, shard)
        if order not in taken:
            payload = wire.QuotaSlice(
                provider=quota.provider,
                region=quota.region,
                machines=quota.per_shard.get(shard, 0),
            )
            yield wire.CoordinatorInstruction(instruction_id=order, quota_slice=payload)


def slice_order(quota: Quota, shard: str) -> str:
    """The id of the order that tells this shard its part."""
    return f"{quota.order}/{shard}"
