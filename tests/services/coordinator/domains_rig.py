"""Racks of three shards, and moves that both shards accept."""

from __future__ import annotations

from bigfleet.services.coordinator import domains
from bigfleet.services.coordinator.domain_lifecycle import DomainState
from bigfleet.services.coordinator.domain_moves import DomainMove
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Domain, Shard, put

RACK = "topology.bigfleet/rack"
SHARDS = ("s-0", "s-1", "s-2")


def owned_rack(
    rack: str, shard: str, machines: int = 0, instance_type: str = "", home: str = ""
) -> Domain:
    """A rack at rest."""
    state, instruction = DomainState.OWNED, f"1-{rack}"
    return Domain(
        RACK,
        rack,
        shard,
        state,
        instruction,
        machines=machines,
        instance_type=instance_type,
        home=home,
    )


def registry_of(*racks: Domain, **owners: str) -> Registry:
    """Racks, also by their shard alone."""
    registry = Registry()
    registry.apply(put(*(Shard(name, "127.0.0.1:1", 1, 0) for name in SHARDS)))
    registry.apply(put(*racks, *(owned_rack(rack, shard) for rack, shard in owners.items())))
    return registry


def carry_out(registry: Registry, move: DomainMove, new_id: domains.NewInstructionId) -> None:
    """The leader orders the move, and both shards accept."""
    registry.apply(domains.move(registry, move.name, move.to, new_id, move.reason, move.home))
    registry.apply(domains.released(registry, registry.domains[move.name], new_id))
    assert registry.domains[move.name].reason == move.reason
    registry.apply(domains.taken(registry.domains[move.name]))
