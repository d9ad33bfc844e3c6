"""The fleet of a plan: every machine of the provider's inventory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from bigfleet.model.labels import CAPACITY_TYPE_LABEL, capacity_type_label
from loaddriver.errors import ProfileError
from loaddriver.plan.manifests import INSTANCE_TYPE_KEY, RACK_KEY, ZONE_KEY
from loaddriver.profile.archetypes import Archetype
from loaddriver.profile.catalog import Catalog
from loaddriver.profile.fleet import ProviderEntry, SupplyEntry
from loaddriver.profile.instance_types import (
    InstanceType,
    MachineSpec,
    Pricing,
    dedicated_machine,
    instance_type_labels,
    shared_machine,
)
from loaddriver.profile.loading import Profile
from loaddriver.profile.settings import ProfileSettings
from loaddriver.sizing.demand import ClusterDemand, PlanDemand, SizeDemand

SupplyClass = Literal["idle", "speculative", "spot"]
SUPPLY_CLASSES: tuple[SupplyClass, ...] = ("idle", "speculative", "spot")
_CAPACITY_TYPES: dict[str, Literal["ON_DEMAND", "SPOT", "RESERVED"]] = {
    "onDemand": "ON_DEMAND",
    "spot": "SPOT",
    "reserved": "RESERVED",
}

_PROFILE_NAMES: dict[str, str] = {name: key for key, name in _CAPACITY_TYPES.items()}


class InventoryTaint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A taint that the machine's Node carries for its whole life."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class InventoryMachine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One machine of the inventory file; `resources` are allocatable, as quantities."""

    id: str
    state: Literal["IDLE", "SPECULATIVE"]
    instance_type: str
    zone: str
    rack: str
    capacity_type: Literal["BARE_METAL", "RESERVED", "ON_DEMAND", "SPOT"]
    price_per_hour: float
    interruption_probability: float
    resources: dict[str, str]
    labels: dict[str, str]
    taints: tuple[InventoryTaint, ...] = ()


def shard_demand(settings: ProfileSettings, size: SizeDemand) -> ClusterDemand:
    """The most that one shard's clusters can need of a pod size; clusters are split evenly.

    A shard has only its own part of the fleet, so each part must suffice for its clusters.
    """
    return size.largest_clusters(-(-settings.clusters // settings.bigfleet.shards))


def supply_counts(settings: ProfileSettings, size: SizeDemand) -> dict[SupplyClass, int]:
    """Machines of each supply class for one pod size, in all shards' parts of the fleet."""
    shards = settings.bigfleet.most_shards
    part = _shard_counts(settings, size)
    return {supply_class: shards * count for supply_class, count in part.items()}


def _shard_counts(settings: ProfileSettings, size: SizeDemand) -> dict[SupplyClass, int]:
    fleet, need = settings.fleet, shard_demand(settings, size).machines_claimed
    return {
        "idle": math.ceil(
            fleet.idle_factor_by_archetype.get(size.archetype, fleet.idle_factor or 0) * need
        ),
        "speculative": math.ceil((fleet.speculative_factor or 0) * need),
        "spot": math.ceil(fleet.spot_factor * need),
    }


def fleet_inventory(profile: Profile, demand: PlanDemand | None) -> tuple[InventoryMachine, ...]:
    """Every machine of the fleet, in a fixed order with unique ids.

    Shared machines are counted by the profile, independent of demand.
    """
    if demand is None or profile.catalog.shares_machines:
        return tuple(_shared_machines(profile))
    machines: list[InventoryMachine] = []
    for size in demand.sizes:
        machines.extend(_dedicated_machines(profile, size, first_number=len(machines)))
    return tuple(machines)


def on_premise_machines(profile: Profile) -> tuple[InventoryMachine, ...]:
    """The machines of the federation's on-premise cluster, not part of BigFleet's fleet."""
    federation = profile.settings.federation
    if federation is None:
        return ()
    archetype = profile.catalog.archetype(federation.archetype)
    size, zone = archetype.sizes[0], archetype.zones[0]
    instance_type = size.instance_types[0]
    machine = _machine(
        number=0,
        supply_class="idle",
        instance_type=instance_type,
        zone=zone,
        rack=f"{zone}-on-premise",
        shape=dedicated_machine(archetype, size, profile.catalog.pricing),
        pricing=profile.catalog.pricing,
    )
    count = federation.on_premise.machines
    names = [f"on-premise-{number}" for number in range(count)]
    return tuple(msgspec.structs.replace(machine, id=name) for name in names)


def machines_by_provider(
    providers: Sequence[ProviderEntry], machines: Sequence[InventoryMachine]
) -> dict[str, Sequence[InventoryMachine]]:
    """The part of each provider by name. Raises ProfileError unless each machine is in one part."""
    parts: dict[str, list[InventoryMachine]] = {each.name: [] for each in providers}
    for machine in machines:
        name = _PROFILE_NAMES.get(machine.capacity_type, "bareMetal")
        found = [p.name for p in providers if p.has(name, machine.zone, machine.instance_type)]
        if len(found) != 1:
            which = f"{' and '.join(found)} have" if found else "none has"
            what = f"{name} machines of {machine.instance_type} in {machine.zone}"
            raise ProfileError([f"fleet.providers: {which} {what}; exactly one must"])
        parts[found[0]].append(machine)
    if empty := [name for name, part in parts.items() if not part]:
        raise ProfileError([f"fleet.providers: {empty[0]} has no machines; remove it"])
    return dict(parts)


def save_inventory(machines: Sequence[InventoryMachine], path: Path) -> None:
    """Write the provider's inventory file: JSON lines, one machine each."""
    path.write_bytes(msgspec.json.Encoder().encode_lines(machines))


def rack_sizes(machines: Sequence[InventoryMachine], instance_types: Sequence[str]) -> list[int]:
    """The number of machines of these types in each rack, largest first."""
    counts: dict[str, int] = {}
    for machine in machines:
        if machine.instance_type in instance_types:
            counts[machine.rack] = counts.get(machine.rack, 0) + 1
    return sorted(counts.values(), reverse=True)


def _dedicated_machines(
    profile: Profile, size: SizeDemand, first_number: int
) -> Iterator[InventoryMachine]:
    """Equal parts for all shards, each in its own racks, as shards own whole racks."""
    settings, catalog = profile.settings, profile.catalog
    archetype = catalog.archetype(size.archetype)
    types = archetype.sizes[size.size].instance_types
    shape = dedicated_machine(archetype, archetype.sizes[size.size], catalog.pricing)
    part = [name for name, count in _shard_counts(settings, size).items() for _ in range(count)]
    for number, (shard, position) in enumerate(
        product(range(settings.bigfleet.most_shards), range(len(part)))
    ):
        zone, block = _zone_and_rack(archetype, position, settings.fleet.machines_per_rack)
        yield _machine(
            number=first_number + number,
            supply_class=part[position],
            instance_type=types[position % len(types)],
            zone=zone,
            rack=f"{zone}-{types[0]}-r{block}" + (f"-{shard}" if shard else ""),
            shape=shape,
            pricing=catalog.pricing,
        )


def _zone_and_rack(archetype: Archetype, position: int, machines_per_rack: int) -> tuple[str, int]:
    """The zone and rack number of a machine.

    Racks for gangs are filled one after another, so that a gang fits in one; other machines
    alternate between the zones, so that pods can spread.
    """
    zones = archetype.zones
    if archetype.gang is not None:
        block = position // machines_per_rack
        return zones[block % len(zones)], block // len(zones)
    return zones[position % len(zones)], position // len(zones) // machines_per_rack


def _shared_machines(profile: Profile) -> Iterator[InventoryMachine]:
    """Each zone's machines in racks of mixed types: one of each type, then a second of each."""
    catalog, fleet = profile.catalog, profile.settings.fleet
    in_zone: Counter[str] = Counter()
    most = max((entry.idle + entry.speculative for entry in fleet.supply), default=0)
    offered = [
        (entry, instance_type)
        for entry in fleet.supply
        for instance_type in entry.matching_types(catalog)
    ]
    number = 0
    for copy in range(most):
        for entry, instance_type in offered:
            if copy >= entry.idle + entry.speculative:
                continue
            for zone in entry.zones:
                rack = f"{zone}-r{in_zone[zone] // fleet.machines_per_rack}"
                in_zone[zone] += 1
                idle = copy < entry.idle
                yield _shared_inventory_machine(
                    catalog, entry, instance_type, _Placement(zone, rack, number, idle)
                )
                number += 1


class _Placement(NamedTuple):
    zone: str
    rack: str
    number: int
    idle: bool


def _shared_inventory_machine(
    catalog: Catalog, entry: SupplyEntry, instance_type: InstanceType, place: _Placement
) -> InventoryMachine:
    assert catalog.system_reserved is not None  # a catalog with instance types has one
    shape = shared_machine(instance_type, catalog.system_reserved, catalog.pricing)
    pricing, capacity_type = catalog.pricing, _CAPACITY_TYPES[entry.capacity_type]
    price_factor = {"ON_DEMAND": 1.0, "SPOT": pricing.spot_price_fraction, "RESERVED": 0.0}
    spot = capacity_type == "SPOT"
    return InventoryMachine(
        id=f"{_dns_prefix(instance_type.name)}-{place.number:06d}",
        state="IDLE" if place.idle else "SPECULATIVE",
        instance_type=instance_type.name,
        zone=place.zone,
        rack=place.rack,
        capacity_type=capacity_type,
        price_per_hour=round(shape.dollars_per_hour * price_factor[capacity_type], 4),
        interruption_probability=pricing.spot_interruption_probability if spot else 0.0,
        resources=shape.quantities(),
        labels={
            **instance_type_labels(instance_type),
            INSTANCE_TYPE_KEY: instance_type.name,
            ZONE_KEY: place.zone,
            RACK_KEY: place.rack,
            CAPACITY_TYPE_LABEL: capacity_type_label(capacity_type),
        },
        taints=tuple(
            InventoryTaint(key=taint.key, value=taint.value, effect=taint.effect)
            for taint in (*instance_type.taints, *entry.taints)
        ),
    )


def _machine(
    *,
    number: int,
    supply_class: SupplyClass,
    instance_type: str,
    zone: str,
    rack: str,
    shape: MachineSpec,
    pricing: Pricing,
) -> InventoryMachine:
    # Idle machines are already owned, so using one costs nothing extra.
    dollars = {
        "idle": 0.0,
        "speculative": shape.dollars_per_hour,
        "spot": round(shape.dollars_per_hour * pricing.spot_price_fraction, 4),
    }
    capacity: dict[SupplyClass, Literal["BARE_METAL", "ON_DEMAND", "SPOT"]] = {
        "idle": "BARE_METAL",
        "speculative": "ON_DEMAND",
        "spot": "SPOT",
    }
    spot = supply_class == "spot"
    return InventoryMachine(
        id=f"{_dns_prefix(instance_type)}-{number:06d}",
        state="IDLE" if supply_class == "idle" else "SPECULATIVE",
        instance_type=instance_type,
        zone=zone,
        rack=rack,
        capacity_type=capacity[supply_class],
        price_per_hour=dollars[supply_class],
        interruption_probability=pricing.spot_interruption_probability if spot else 0.0,
        resources=shape.quantities(),
        labels={INSTANCE_TYPE_KEY: instance_type, ZONE_KEY: zone, RACK_KEY: rack},
    )


def _dns_prefix(instance_type: str) -> str:
    """A DNS label prefix that leaves space for a number within 36 characters."""
    return instance_type.replace(".", "-")[:28].rstrip("-")
