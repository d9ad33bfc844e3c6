"""What a diagnosis must know of each archetype: how its pods fit onto which machines."""

from __future__ import annotations

from collections.abc import Sequence

from loaddriver.judge.facts import ArchetypeFacts
from loaddriver.profile.archetypes import Archetype
from loaddriver.profile.loading import Profile
from loaddriver.sizing.inventory import InventoryMachine


def archetype_facts(
    profile: Profile, machines: Sequence[InventoryMachine]
) -> dict[str, ArchetypeFacts]:
    """By archetype name; `machines` are all that the fleet has or can create."""
    return {each.name: _facts(each, machines) for each in profile.catalog.archetypes}


def _facts(archetype: Archetype, machines: Sequence[InventoryMachine]) -> ArchetypeFacts:
    types = frozenset(name for size in archetype.sizes for name in size.instance_types)
    return ArchetypeFacts(
        pods_per_machine=archetype.pods_per_machine or 0,
        instance_types=types,
        topology=archetype.gang.topology if archetype.gang else "",
        fleet_machines=sum(machine.instance_type in types for machine in machines),
    )
