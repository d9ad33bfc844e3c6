"""Karpenter is offered the machines that BigFleet has: their sizes, prices, labels and taints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bigfleet.model import resources
from bigfleet.model.labels import CAPACITY_TYPE_LABEL
from loaddriver.karpenter.objects import instance_types, machine_of, node_class, node_pools
from loaddriver.plan.manifests import INSTANCE_TYPE_KEY, RACK_KEY, ZONE_KEY
from loaddriver.profile.loading import Profile, load_profile
from loaddriver.sizing.inventory import (
    InventoryMachine,
    fleet_inventory,
)

PROFILES = Path(__file__).parents[2] / "profiles"
KEPT = {"cpu": "100m", "memory": "10Mi"}  # what the kwok provider keeps for kubelets


def mixed(*overrides: str) -> Profile:
    return load_profile("mixed-50", PROFILES, ["system=karpenter", *overrides])


@pytest.fixture(scope="module")
def machines() -> tuple[InventoryMachine, ...]:
    """The fleet of mixed-50: on demand, spot, reserved, with GPUs."""
    return fleet_inventory(mixed(), None)


def values(requirements: list[dict[str, Any]], key: str) -> list[str]:
    return next((each["values"] for each in requirements if each["key"] == key), [])


def test_every_machine_has_an_offering_of_its_price_and_labels(
    machines: tuple[InventoryMachine, ...],
) -> None:
    """One that is paid for is offered at the price of those that are bought, if there are any."""
    types = {each["name"]: each for each in instance_types(machines)}
    assert set(types) == {machine.instance_type for machine in machines}
    for machine in machines:
        capacity_type = "spot" if machine.capacity_type == "SPOT" else "on-demand"
        (offering,) = (
            each
            for each in types[machine.instance_type]["offerings"]
            if values(each["Requirements"], ZONE_KEY) == [machine.zone]
            and values(each["Requirements"], "karpenter.sh/capacity-type") == [capacity_type]
        )
        if machine.capacity_type != "RESERVED":
            assert offering["Price"] == machine.price_per_hour
        for key in set(machine.labels) - {
            INSTANCE_TYPE_KEY,
            RACK_KEY,
            ZONE_KEY,
            CAPACITY_TYPE_LABEL,
        }:
            assert values(offering["Requirements"], key) == [machine.labels[key]]


def test_what_the_provider_keeps_of_a_machine_is_added_before(
    machines: tuple[InventoryMachine, ...],
) -> None:
    """So that pods have as much room as on the same machine of BigFleet's."""
    (offered,) = instance_types(machines[:1])
    whole = resources.parse_capacity(offered["resources"])
    own = resources.parse_capacity(machines[0].resources)
    for name, kept in KEPT.items():
        whole[name] -= resources.parse(name, kept, round_up=True)
    assert whole == own


def test_a_pool_has_one_zone_and_one_set_of_taints(machines: tuple[InventoryMachine, ...]) -> None:
    """A rack of a pool is then one of its zone; and who does not tolerate a taint never pays it."""
    pools = [each["spec"] for each in node_pools(machines, mixed().settings)]
    zones = {machine.rack: machine.zone for machine in machines}
    for pool in pools:
        requirements = pool["template"]["spec"]["requirements"]
        (zone,) = values(requirements, ZONE_KEY)
        assert {zones[rack] for rack in values(requirements, RACK_KEY)} == {zone}
        spot = values(requirements, "karpenter.sh/capacity-type") == ["spot"]
        keys = [taint["key"] for taint in pool["template"]["spec"]["taints"]]
        assert spot == ("scaletest.bigfleet/spot" in keys)
    served = {
        (each, *values(pool["template"]["spec"]["requirements"], ZONE_KEY))
        for pool in pools
        for each in values(pool["template"]["spec"]["requirements"], INSTANCE_TYPE_KEY)
    }
    assert served == {(machine.instance_type, machine.zone) for machine in machines}


def test_machines_that_are_paid_for_are_used_first_and_no_further(
    machines: tuple[InventoryMachine, ...],
) -> None:
    """There are two of 16 vCPUs in each zone."""
    limited = [
        each["spec"] for each in node_pools(machines, mixed().settings) if "limits" in each["spec"]
    ]
    assert len(limited) == 3
    for pool in limited:
        assert pool["weight"] == 100
        cpu = resources.parse("cpu", pool["limits"]["cpu"], round_up=False)
        assert 2 * 15_900 <= cpu <= 2 * 16_100


def test_nodes_register_as_late_as_those_of_bigfleet_in_the_median() -> None:
    """Four seconds for creation, one for configuration."""
    assert node_class(mixed().settings)["spec"] == {"nodeRegistrationDelay": "5s"}


@pytest.mark.parametrize(("asked", "written"), [("null", "Never"), ("20", "20s")])
def test_karpenter_releases_nodes_only_if_it_is_asked_to(
    asked: str, written: str, machines: tuple[InventoryMachine, ...]
) -> None:
    settings = mixed(f"karpenter.consolidateAfterSeconds={asked}").settings
    for pool in node_pools(machines, settings):
        assert pool["spec"]["disruption"]["consolidateAfter"] == written


def test_a_node_costs_what_the_machine_costs_that_it_stands_for(
    machines: tuple[InventoryMachine, ...],
) -> None:
    """Under its own name, in its own rack."""
    spot = next(machine for machine in machines if machine.capacity_type == "SPOT")
    labels = {**spot.labels, RACK_KEY: "zone-a-r9", "karpenter.sh/nodepool": "pool-3"}
    found = machine_of("kwok-1", labels, machines)
    assert found is not None
    assert (found.id, found.rack, found.price_per_hour) == (
        "kwok-1",
        "zone-a-r9",
        spot.price_per_hour,
    )
    assert found.taints == spot.taints
    assert machine_of("kwok-2", {**labels, INSTANCE_TYPE_KEY: "x9.large"}, machines) is None
