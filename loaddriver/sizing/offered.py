"""What a provider that is not the harness's offers to a plan. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from bigfleet.model import resources
from bigfleet.model.machine import Machine, MachineState
from loaddriver.plan.manifests import INSTANCE_TYPE_KEY, RACK_KEY, ZONE_KEY
from loaddriver.profile.catalog import Catalog
from loaddriver.sizing.demand import PlanDemand, Size, SizeDemand
from loaddriver.sizing.fit import PodRequirements, offering_of, pod_requirements
from loaddriver.sizing.inventory import (
    SUPPLY_CLASSES,
    InventoryMachine,
    SupplyClass,
)

FREE_STATES = (MachineState.IDLE, MachineState.SPECULATIVE)


def inventory_machine(machine: Machine) -> InventoryMachine:
    """A listed machine, which is in one of FREE_STATES, as one of the harness's inventory."""
    labels = {
        INSTANCE_TYPE_KEY: machine.instance_type,
        ZONE_KEY: machine.zone,
        **machine.labels,
    }
    facts = {
        "id": machine.id,
        "state": machine.state.name,
        "instance_type": machine.instance_type,
        "zone": machine.zone,
        "rack": labels.get(RACK_KEY, ""),
        "capacity_type": machine.capacity_type.name,
        "price_per_hour": machine.price_per_hour,
        "interruption_probability": machine.interruption_probability,
        "resources": resources.texts(machine.allocatable),
        "labels": labels,
        "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in machine.taints],
    }
    return msgspec.convert(facts, InventoryMachine)


def offered_counts(
    demand: PlanDemand, machines: Sequence[InventoryMachine], catalog: Catalog
) -> Mapping[Size, Mapping[SupplyClass, int]]:
    """The machines that hold as many pods of a size as its dedicated machine does, by size.

    A machine that several sizes accept counts for the first of them that still lacks machines, or
    else for the last.
    """
    needs = {_key(size): _pod_of(size, catalog) for size in demand.sizes}
    wanted = {_key(size): size.machines_claimed for size in demand.sizes}
    found = {key: dict.fromkeys(SUPPLY_CLASSES, 0) for key in needs}
    for machine in machines:
        offering = offering_of(machine, catalog.daemon_sets)
        holding = [
            key
            for key, pod in needs.items()
            if pod.accepts(offering)
            and pod.count_fitting(offering) >= catalog.archetype(key[0]).density
        ]
        lacking = [key for key in holding if sum(found[key].values()) < wanted[key]]
        for key in (lacking or holding[-1:])[:1]:
            found[key][_supply_class(machine)] += 1
    return found


def _key(size: SizeDemand) -> Size:
    return size.archetype, size.size


def _pod_of(size: SizeDemand, catalog: Catalog) -> PodRequirements:
    return pod_requirements(catalog.archetype(size.archetype), size.size)


def _supply_class(machine: InventoryMachine) -> SupplyClass:
    if machine.state == "IDLE":
        return "idle"
    return "spot" if machine.capacity_type == "SPOT" else "speculative"
