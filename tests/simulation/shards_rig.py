"""Worlds of several shards, and who owns what in them."""

from __future__ import annotations

from typing import Any

from bigfleet.model import domain as topology
from bigfleet.simulation.spec import WorldSpec
from bigfleet.simulation.world import World
from tests.simulation.simulation_rig import (
    RACK,
    machines,
    world_spec,
)

SHARDS: dict[str, Any] = {"shards": ("s-0", "s-1"), "coordinators": ("c-0", "c-1")}


def two_racks(each: int, **fields: Any) -> WorldSpec:
    """Two shards, a rack for each, two clusters."""
    fleet = [*machines(each, "m", rack="r1", **fields), *machines(each, "n", rack="r2", **fields)]
    return world_spec(fleet, "east", "west", **SHARDS)


def owner(world: World, rack: str) -> str:
    """The shard that owns a rack by its own word; "" for none."""
    domain = topology.Domain(RACK, rack)
    return next((n for n, host in world.hosts.items() if domain in host.held.domains), "")


def owners(world: World, racks: int) -> dict[str, str]:
    """The shard of each rack."""
    return {rack: owner(world, rack) for rack in (f"r{number + 1}" for number in range(racks))}


def assert_single_owner(world: World) -> None:
    """Exactly one shard owns each machine."""
    machines_now = world.provider.machines()
    assert [*world.ownership.orphans(machines_now, world.removed_shards)] == []
