"""The fleet of a run without BigFleet: all machines as Nodes, and Nodes as machines. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from bigfleet.model.labels import CAPACITY_TYPE_LABEL
from loaddriver.plan.manifests import INSTANCE_TYPE_KEY, RACK_KEY, ZONE_KEY
from loaddriver.run.paired_run import ServedNode
from loaddriver.sizing.inventory import InventoryMachine


def fleet_nodes(
    machines: Sequence[InventoryMachine], clusters: Sequence[str]
) -> tuple[ServedNode, ...]:
    """The whole fleet, divided among the clusters in equal parts.

    Racks are dealt out whole, one after the other in the fleet's order, which goes by instance
    type and zone: a gang needs a rack, and each cluster gets some of every kind.
    """
    racks = dict.fromkeys(machine.rack for machine in machines)
    owners = {rack: clusters[number % len(clusters)] for number, rack in enumerate(racks)}
    return tuple(ServedNode(cluster=owners[each.rack], machine=each) for each in machines)


def machine_like(
    name: str, labels: Mapping[str, str], machines: Iterable[InventoryMachine]
) -> InventoryMachine | None:
    """The fleet's machine that another system's Node stands for, under the Node's name and in its
    rack: of its instance type and zone, and of its capacity type if it is labelled with one, else
    the dearest. None if no machine of the fleet is like it.
    """
    keys = [INSTANCE_TYPE_KEY, ZONE_KEY]
    if CAPACITY_TYPE_LABEL in labels:
        keys.append(CAPACITY_TYPE_LABEL)
    like = [
        machine
        for machine in machines
        if all(machine.labels.get(key) == labels.get(key) for key in keys)
    ]
    if not like:
        return None
    found = max(like, key=lambda machine: machine.price_per_hour)
    rack = labels.get(RACK_KEY, "")
    return msgspec.structs.replace(
        found, id=name, rack=rack, labels={**found.labels, RACK_KEY: rack}
    )
