"""Each of several shards has a part of the fleet that suffices for its clusters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import count

import pytest

from bigfleet.model.domain import Domain
from bigfleet.services.coordinator import domains
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Shard, put
from bigfleet.services.shard.coordination.domain_observations import DomainObservations
from loaddriver.errors import ProfileError
from loaddriver.plan.manifests import RACK_KEY
from loaddriver.profile.loading import Profile
from loaddriver.sizing.demand import PlanDemand
from loaddriver.sizing.estimate import HostCapacity
from loaddriver.sizing.inventory import InventoryMachine, fleet_inventory, shard_demand
from loaddriver.sizing.preflight import preflight
from tests.loaddriver.load_rig import planned, shipped

PLENTY = HostCapacity(cores=2, memory_available_bytes=2**40, disk_free_bytes=2**40)


def with_shards(name: str, shards: int, *overrides: str) -> tuple[Profile, PlanDemand]:
    """A shipped profile with `shards` shards, and the demand of its plan."""
    several = f"bigfleet.shards={shards}", "bigfleet.coordinators=1"
    profile, _, need = planned(name, *several, *overrides)
    return profile, need


def given_to(
    shards: int, machines: Sequence[InventoryMachine]
) -> dict[str, list[InventoryMachine]]:
    """The machines of each shard after the coordinator has assigned all reported racks."""
    racks: defaultdict[str, list[InventoryMachine]] = defaultdict(list)
    types: defaultdict[Domain, Counter[str]] = defaultdict(Counter)
    for machine in machines:
        racks[machine.rack].append(machine)
        types[Domain(RACK_KEY, machine.rack)][machine.instance_type] += 1
    seen = [
        domains.Observation(
            each.topology_key, each.topology_value, each.machines, each.instance_type
        )
        for each in DomainObservations().due(types, (), 0.0)
    ]
    names, numbers, registry = [f"shard-{n}" for n in range(shards)], count(), Registry()
    registry.apply(put(*(Shard(name, "127.0.0.1:1", 1, 0) for name in names)))
    registry.apply(domains.assign_unowned(registry, names, seen, lambda: str(next(numbers))))
    return {
        name: [m for d in registry.domains_of(name) for m in racks[d.topology_value]]
        for name in names
    }


@pytest.mark.parametrize(("name", "shards"), [("dev-50", 2), ("dev-500", 4), ("shards-8", 8)])
def test_every_shard_can_serve_any_of_the_clusters(name: str, shards: int) -> None:
    """Its part has the machines that any clusters assigned to it are allocated."""
    profile, need = with_shards(name, shards)
    for machines in given_to(shards, fleet_inventory(profile, need)).values():
        for size in need.sizes:
            types = profile.catalog.archetype(size.archetype).sizes[size.size].instance_types
            own = sum(machine.instance_type in types for machine in machines)
            assert own >= shard_demand(profile.settings, size).machines_claimed


def test_a_part_that_is_too_small_is_rejected() -> None:
    less = "fleet.idleFactor=0.2", "fleet.speculativeFactor=0.5"
    profile, need = with_shards("dev-50", 2, *less)
    machines = fleet_inventory(profile, need)
    errors = preflight(profile, need, machines, PLENTY).profile_errors
    assert any("in the parts of 2 shards" in error for error in errors)


def test_more_shards_than_clusters_are_rejected() -> None:
    """One of them would have no cluster."""
    with pytest.raises(ProfileError, match=r"bigfleet.shards = 3: there are 2 clusters"):
        shipped("dev-50", "bigfleet.shards=3", "bigfleet.coordinators=1")
