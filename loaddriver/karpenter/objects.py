"""What Karpenter is told of the fleet: instance types, NodePools and a KWOKNodeClass.

Karpenter buys without limit where the fleet has a number of machines of each type. Machines that
are paid for already are limited, and used first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgspec

from bigfleet.model import resources
from bigfleet.model.labels import CAPACITY_TYPE_LABEL
from loaddriver.plan.manifests import INSTANCE_TYPE_KEY, RACK_KEY, ZONE_KEY
from loaddriver.profile.fleet import LatencyDistribution
from loaddriver.profile.settings import ProfileSettings
from loaddriver.sizing.inventory import InventoryMachine
from loaddriver.substrates.existing.objects import FLEET, MANAGED

Manifest = dict[str, Any]

NODE_CLASS = "scaletest"
_CAPACITY_TYPE = "karpenter.sh/capacity-type"
# The kwok provider reserves this much of each machine itself.
_RESERVED = {"cpu": "100m", "memory": "10Mi"}
# These come from the NodePool or from the offering itself.
_OTHER_KEYS = frozenset({INSTANCE_TYPE_KEY, RACK_KEY, ZONE_KEY, CAPACITY_TYPE_LABEL})
_PAID_FOR = ("RESERVED", "BARE_METAL")
_FIRST = 100


@dataclass(frozen=True, order=True)
class _Pool:
    """Machines of which Karpenter may choose any: a NodePool has one zone, so that a rack implies
    it, and one set of taints.
    """

    zone: str
    capacity_type: str
    taints: tuple[tuple[str, str, str], ...]

    @classmethod
    def of(cls, machine: InventoryMachine) -> _Pool:
        taints = tuple(sorted((each.key, each.value, each.effect) for each in machine.taints))
        return cls(machine.zone, machine.capacity_type, taints)


def instance_types(machines: Iterable[InventoryMachine]) -> list[Manifest]:
    """The kwok provider's instance types, with one offering for each zone and capacity type."""
    ordered = sorted(machines, key=lambda machine: machine.instance_type)
    return [
        _instance_type(name, list(group))
        for name, group in groupby(ordered, key=lambda machine: machine.instance_type)
    ]


def node_pools(
    machines: Sequence[InventoryMachine], settings: ProfileSettings, *, apart: bool = False
) -> Iterator[Manifest]:
    """A NodePool for each zone, capacity type and set of taints.

    With `apart` only the load's pods tolerate their Nodes, which the harness's own kwok plays.
    """
    for number, (pool, group) in enumerate(groupby(sorted(machines, key=_Pool.of), key=_Pool.of)):
        made = _node_pool(f"pool-{number}", pool, list(group), settings)
        if apart:
            _set_apart(made["spec"]["template"])
        yield made


def node_class(settings: ProfileSettings) -> Manifest:
    """The class of all Nodes: they register as late as BigFleet's do in the median."""
    latency = settings.fleet.latency
    delay = sum(
        each.median if isinstance(each, LatencyDistribution) else each
        for each in (latency.create_seconds, latency.configure_seconds)
    )
    return {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": NODE_CLASS},
        "spec": {"nodeRegistrationDelay": f"{round(delay)}s"},
    }


def machine_of(
    name: str, labels: Mapping[str, str], machines: Iterable[InventoryMachine]
) -> InventoryMachine | None:
    """The fleet's machine that a Node of Karpenter stands for, under the Node's name and in its
    rack; None if no machine of the fleet is like it.
    """
    keys = (INSTANCE_TYPE_KEY, ZONE_KEY, CAPACITY_TYPE_LABEL)
    like = next(
        (
            machine
            for machine in machines
            if all(machine.labels.get(key) == labels.get(key) for key in keys)
        ),
        None,
    )
    if like is None:
        return None
    rack = labels.get(RACK_KEY, "")
    own_labels = {**like.labels, RACK_KEY: rack}
    return msgspec.structs.replace(like, id=name, rack=rack, labels=own_labels)


def _instance_type(name: str, machines: Sequence[InventoryMachine]) -> Manifest:
    offerings: dict[tuple[str, str], Manifest] = {}
    # What is paid for shares its offering with what is bought, at the latter's price: the NodePool
    # tells them apart.
    for machine in sorted(machines, key=lambda each: each.price_per_hour):
        capacity_type = _capacity_type(machine.capacity_type)
        offerings[machine.zone, capacity_type] = {
            "Price": machine.price_per_hour,
            "Available": True,
            "Requirements": [
                _in(ZONE_KEY, machine.zone),
                _in(_CAPACITY_TYPE, capacity_type),
                *(_in(key, value) for key, value in _own_labels(machine)),
            ],
        }
    return {
        "name": name,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "offerings": list(offerings.values()),
        "resources": _capacity(machines[0]),
    }


def _node_pool(
    name: str, pool: _Pool, machines: Sequence[InventoryMachine], settings: ProfileSettings
) -> Manifest:
    label = machines[0].labels.get(CAPACITY_TYPE_LABEL)
    spec: Manifest = {
        "disruption": _disruption(settings),
        "template": {
            "metadata": {"labels": {CAPACITY_TYPE_LABEL: label} if label else {}},
            "spec": {
                "nodeClassRef": {
                    "group": "karpenter.kwok.sh",
                    "kind": "KWOKNodeClass",
                    "name": NODE_CLASS,
                },
                "expireAfter": "Never",
                "taints": msgspec.to_builtins(machines[0].taints),
                "requirements": [
                    _in(ZONE_KEY, pool.zone),
                    _in(_CAPACITY_TYPE, _capacity_type(pool.capacity_type)),
                    _in(INSTANCE_TYPE_KEY, *sorted({each.instance_type for each in machines})),
                    _in(RACK_KEY, *sorted({each.rack for each in machines})),
                ],
            },
        },
    }
    if pool.capacity_type in _PAID_FOR:
        cpu = sum(resources.parse_capacity(_capacity(each))["cpu"] for each in machines)
        spec |= {"weight": _FIRST, "limits": {"cpu": resources.text("cpu", cpu)}}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": spec,
    }


def _set_apart(template: Manifest) -> None:
    key, value = FLEET
    template["metadata"]["labels"] |= {key: value, MANAGED[0]: MANAGED[1]}
    template["metadata"]["annotations"] = {key: value}
    own = {"key": key, "value": value, "effect": "NoSchedule"}
    template["spec"]["taints"] = [*template["spec"]["taints"], own]


def _disruption(settings: ProfileSettings) -> Manifest:
    seconds = settings.karpenter.consolidate_after_seconds
    return {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "Never" if seconds is None else f"{round(seconds)}s",
    }


def _capacity(machine: InventoryMachine) -> dict[str, str]:
    """The machine's allocatable resources, and what the kwok provider takes off them."""
    amounts = resources.parse_capacity(machine.resources)
    for name, reserved in _RESERVED.items():
        amounts[name] += resources.parse(name, reserved, round_up=True)
    return resources.texts(amounts)


def _capacity_type(capacity_type: str) -> str:
    return "spot" if capacity_type == "SPOT" else "on-demand"


def _own_labels(machine: InventoryMachine) -> list[tuple[str, str]]:
    return sorted((k, v) for k, v in machine.labels.items() if k not in _OTHER_KEYS)


def _in(key: str, *values: str) -> Manifest:
    return {"key": key, "operator": "In", "values": list(values)}
