"""Demand that the fleet of shared machines cannot hold is rejected by name."""

from __future__ import annotations

import pytest

from loaddriver.errors import ProfileError
from loaddriver.sizing.estimate import GIBIBYTE, HostCapacity
from loaddriver.sizing.inventory import fleet_inventory
from loaddriver.sizing.preflight import Preflight, preflight
from tests.loaddriver.load_rig import SHARED, planned_shared

TEST_MACHINE = HostCapacity(
    cores=2, memory_available_bytes=20 * GIBIBYTE, disk_free_bytes=20 * GIBIBYTE
)
SMALL = "[{families: [c6, m6, r6, m7, g6], zones: [%s], capacityType: %s, speculative: %d}]"
EVERYWHERE = "zone-a, zone-b, zone-c"
LITTLE = (
    f"fleet.supply=[{{families: [c6], zones: [{EVERYWHERE}], capacityType: spot, speculative: 1}}]"
)


def checked(name: str, *overrides: str) -> Preflight:
    profile, _, need = planned_shared(name, *overrides)
    return preflight(profile, need, fleet_inventory(profile, None), TEST_MACHINE)


def preflight_error(name: str, *overrides: str) -> str:
    with pytest.raises(ProfileError) as caught:
        checked(name, *overrides).raise_errors()
    return str(caught.value)


@pytest.mark.parametrize("name", SHARED)
def test_every_shipped_profile_fits_its_fleet_and_two_cores(name: str) -> None:
    checked(name).raise_errors()


def test_peak_demand_is_printed_with_its_lower_bounds() -> None:
    lines = checked("mixed-50").lines
    assert "pods at the peak in 2 clusters" in lines[0]
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:19]}
    assert rows["large"][2] == "8000-28000"
    assert int(rows["all"][1]) == sum(int(row[1]) for name, row in rows.items() if name != "all")
    assert any("machines; the peak needs" in line for line in lines)
    assert all(len(line) <= 80 for line in lines)


def test_a_size_that_fits_no_machine_is_named_with_the_largest_one() -> None:
    small = "fleet.supply=[{instanceTypes: [m6.large], zones: [zone-a], capacityType: onDemand, "
    error = preflight_error("spread-50", small + "speculative: 4000}]")
    assert "of the sizes of evenly-spread fit no machine that their pods accept" in error
    assert "the largest has 1586m cpu" in error
    assert "change fleet.supply" in error


def test_a_selector_that_no_machine_matches_is_named() -> None:
    error = preflight_error("mixed-50", "fleet.supply=" + SMALL % (EVERYWHERE, "onDemand", 9))
    assert "spot-batch fit no machine that their pods accept" in error
    assert "none is allowed" in error


def test_insufficient_supply_names_resource_and_amounts() -> None:
    error = preflight_error("spread-50", LITTLE)
    assert "5000 pods accept" in error
    assert "pods, the machines have" in error
    assert "(10 % more is needed for packing)" in error


def test_supply_must_suffice_for_pods_confined_to_few_machines() -> None:
    """There is enough in total, but not in the zone of some pods."""
    supply = (
        "fleet.supply=[{families: [c6, m6, r6, m7, g6], zones: [zone-b, zone-c], capacityType: "
        "onDemand, speculative: 9}, {families: [m6], zones: [zone-b], capacityType: spot, "
        "speculative: 9}, {instanceTypes: [m6.2xlarge], zones: [zone-a], capacityType: onDemand, "
        "speculative: 2}]"
    )
    error = preflight_error("mixed-50", supply)
    assert "pods accept only 2 machines" in error


def test_more_anti_affine_replicas_than_machines_are_rejected() -> None:
    supply = "fleet.supply=[{instanceTypes: [m6.24xlarge], zones: [zone-a], capacityType: onDemand,"
    few = ("podsPerCluster=400", "clusters=1", f"{supply} speculative: 12}}]")
    error = preflight_error("antiaffinity-50", *few)
    assert "pods of which no two may share a machine; only 12 machines" in error


def test_a_gang_that_fits_no_rack_is_rejected() -> None:
    machines = "{instanceTypes: [m6.large], zones: [zone-a], capacityType: onDemand,"
    few = (
        "podsPerCluster=40",
        "weights={same-rack-cache: 1, default-service: 1}",
        f"fleet.supply=[{machines} speculative: 300}}, "
        "{instanceTypes: [m6.4xlarge], zones: [zone-b], capacityType: onDemand, speculative: 60}]",
        "fleet.machinesPerRack=1",
        "demandSteps=[]",
        "bursts=[]",
    )
    checked("mixed-50", *few).raise_errors()
    lean = [each.replace("m6.4xlarge", "m6.xlarge") for each in few]
    assert "pods that must share a rack; the largest rack fits" in preflight_error(
        "mixed-50", *lean
    )


def test_scarcity_of_shared_machines_must_be_declared_and_real() -> None:
    checked("spread-50", LITTLE, "fleet.scarce=true").raise_errors()
    assert "fleet.scarce: the fleet covers all demand" in preflight_error(
        "spread-50", "fleet.scarce=true"
    )
