"""The fleet of shared machines, and which pods fit them."""

from __future__ import annotations

from collections import Counter

import pytest

from bigfleet.model import resources
from loaddriver.plan.records import RAMP
from loaddriver.sizing.fit import (
    Offering,
    PodRequirements,
    group_offerings,
    offering_of,
    pod_requirements,
    pods_by_requirements,
)
from loaddriver.sizing.inventory import InventoryMachine, fleet_inventory
from tests.loaddriver.load_rig import planned_shared, shipped

MIXED = "mixed-50"


@pytest.fixture(scope="module")
def machines() -> tuple[InventoryMachine, ...]:
    return fleet_inventory(shipped(MIXED), None)


def of_type(
    machines: tuple[InventoryMachine, ...], name: str, capacity: str
) -> list[InventoryMachine]:
    return [m for m in machines if m.instance_type == name and m.capacity_type == capacity]


def offering(machine: InventoryMachine) -> Offering:
    return offering_of(machine, shipped(MIXED).catalog.daemon_sets)


def needs(archetype: str, size: int = 0) -> PodRequirements:
    return pod_requirements(shipped(MIXED).catalog.archetype(archetype), size)


def test_each_zone_has_the_profiles_number_of_each_type(
    machines: tuple[InventoryMachine, ...],
) -> None:
    found = Counter((m.zone, m.state) for m in of_type(machines, "m6.4xlarge", "ON_DEMAND"))
    assert found == {(f"zone-{zone}", "SPECULATIVE"): 6 for zone in "abc"}
    assert len(of_type(machines, "m6.4xlarge", "SPOT")) == 6
    assert {m.state for m in of_type(machines, "m6.4xlarge", "RESERVED")} == {"IDLE"}
    assert len({machine.id for machine in machines}) == len(machines)


def test_spot_machines_are_cheaper_and_tainted_and_reserved_ones_are_paid_for(
    machines: tuple[InventoryMachine, ...],
) -> None:
    [dear, *_] = of_type(machines, "m6.large", "ON_DEMAND")
    [spot, *_] = of_type(machines, "m6.large", "SPOT")
    [own, *_] = of_type(machines, "m6.4xlarge", "RESERVED")
    assert spot.price_per_hour == pytest.approx(0.35 * dear.price_per_hour, abs=1e-4)
    assert [taint.key for taint in spot.taints] == ["scaletest.bigfleet/spot"]
    assert (own.price_per_hour, dear.taints, own.taints) == (0.0, (), ())
    assert spot.labels["bigfleet.lucy.sh/capacity-type"] == "spot"


def test_a_rack_has_machines_of_many_types(machines: tuple[InventoryMachine, ...]) -> None:
    """So that a gang fits in one rack."""
    racks = Counter(machine.rack for machine in machines)
    assert max(racks.values()) == 24
    types = {machine.instance_type for machine in machines if machine.rack == "zone-a-r0"}
    assert len(types) == 24


def test_daemon_set_pods_are_subtracted_from_a_machine(
    machines: tuple[InventoryMachine, ...],
) -> None:
    """Four of them on any machine, one more where there is a GPU, a pod slot each."""
    [plain, *_] = of_type(machines, "m6.large", "ON_DEMAND")
    [gpu, *_] = of_type(machines, "g6.2xlarge", "ON_DEMAND")
    whole = resources.parse_capacity(plain.resources)
    left = dict(offering(plain).available)
    assert whole["cpu"] - left["cpu"] == 344
    assert (whole["memory"] - left["memory"]) // 1024 == 596
    assert (whole["pods"] - left["pods"]) // 1000 == 4
    assert (
        resources.parse_capacity(gpu.resources)["cpu"] - dict(offering(gpu).available)["cpu"] == 394
    )


def test_selectors_and_tolerations_decide_where_a_pod_may_run(
    machines: tuple[InventoryMachine, ...],
) -> None:
    dear, spot = (
        offering(of_type(machines, "m6.large", each)[0]) for each in ("ON_DEMAND", "SPOT")
    )
    own = offering(of_type(machines, "m6.4xlarge", "RESERVED")[0])
    gpu = offering(of_type(machines, "g6.2xlarge", "ON_DEMAND")[0])
    where = {
        "default-service": (True, False, True, False),
        "batch": (True, True, True, False),
        "spot-batch": (False, True, False, False),
        "production": (True, False, False, False),
        "gpu-inference": (True, False, True, True),
        "newest-processors": (False, False, False, False),
    }
    for name, expected in where.items():
        assert tuple(needs(name).accepts(each) for each in (dear, spot, own, gpu)) == expected
    assert not needs("gpu-inference").fits(own), "it has no GPU"
    assert needs("gpu-inference").fits(gpu)


def test_a_pod_fits_where_daemon_sets_leave_enough(machines: tuple[InventoryMachine, ...]) -> None:
    [machine, *_] = of_type(machines, "m6.large", "ON_DEMAND")
    available = dict(offering(machine).available)
    exact = PodRequirements((("cpu", available["cpu"]), ("pods", 1000)))
    assert exact.fits(offering(machine))
    assert exact.count_fitting(offering(machine)) == 1
    assert not PodRequirements((("cpu", available["cpu"] + 1), ("pods", 1000))).fits(
        offering(machine)
    )
    assert offering(machine).minus({"cpu": 1}).available != offering(machine).available


def test_machines_that_no_pod_distinguishes_are_equivalent(
    machines: tuple[InventoryMachine, ...],
) -> None:
    """Types, racks and zones are labels; only labels that pods select make a difference."""
    profile, plan, _ = planned_shared("spread-50")
    own = fleet_inventory(profile, None)
    pods = pods_by_requirements(plan.workloads, profile.catalog)
    offerings = group_offerings(pods, own, profile.catalog.daemon_sets)
    assert len(offerings) == 24, "three ratios, eight sizes"
    assert sum(offerings.values()) == len(own)
    workloads = [w for w in planned_shared(MIXED)[1].workloads if w.origin == RAMP]
    mixed = pods_by_requirements(workloads, shipped(MIXED).catalog)
    kinds = group_offerings(mixed, machines, shipped(MIXED).catalog.daemon_sets)
    assert sum(kinds.values()) == len(machines)
    assert len(kinds) > 100
