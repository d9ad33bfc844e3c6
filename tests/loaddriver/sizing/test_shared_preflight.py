"""What no fleet of ordinary machines can hold is refused by its name, before anything starts."""

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


def refusal(name: str, *overrides: str) -> str:
    with pytest.raises(ProfileError) as caught:
        checked(name, *overrides).raise_errors()
    return str(caught.value)


@pytest.mark.parametrize("name", SHARED)
def test_every_shipped_profile_fits_its_fleet_and_two_cores(name: str) -> None:
    checked(name).raise_errors()


def test_the_peak_is_printed_with_the_least_that_it_takes() -> None:
    lines = checked("mixed-50").lines
    assert "pods at the peak in 2 clusters" in lines[0]
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:19]}
    assert rows["large"][2] == "8000-28000"
    assert int(rows["all"][1]) == sum(int(row[1]) for name, row in rows.items() if name != "all")
    assert any("machines; the peak takes" in line for line in lines)
    assert all(len(line) <= 80 for line in lines)


def test_a_size_that_fits_no_machine_it_may_use_is_named_with_what_there_is() -> None:
    small = "fleet.supply=[{instanceTypes: [m6.large], zones: [zone-a], capacityType: onDemand, "
    said = refusal("spread-50", small + "speculative: 4000}]")
    assert "of the sizes of evenly-spread fit no machine that their pods may use" in said
    assert "the largest leaves 1586m cpu" in said
    assert "change fleet.supply" in said


def test_a_selector_that_no_machine_answers_is_named() -> None:
    said = refusal("mixed-50", "fleet.supply=" + SMALL % (EVERYWHERE, "onDemand", 9))
    assert "spot-batch fit no machine that their pods may use" in said
    assert "it may use none" in said


def test_too_little_in_all_names_resource_and_amounts() -> None:
    said = refusal("spread-50", LITTLE)
    assert "5000 pods may use" in said
    assert "pods, and those have" in said
    assert "(a tenth more is needed to pack them)" in said


def test_too_little_for_those_who_can_use_few_machines_only() -> None:
    """There is enough in all, but what one zone's pods need is elsewhere."""
    supply = (
        "fleet.supply=[{families: [c6, m6, r6, m7, g6], zones: [zone-b, zone-c], capacityType: "
        "onDemand, speculative: 9}, {families: [m6], zones: [zone-b], capacityType: spot, "
        "speculative: 9}, {instanceTypes: [m6.2xlarge], zones: [zone-a], capacityType: onDemand, "
        "speculative: 2}]"
    )
    said = refusal("mixed-50", supply)
    assert "pods may use 2 machines only" in said


def test_more_replicas_that_keep_apart_than_machines_are_refused() -> None:
    supply = "fleet.supply=[{instanceTypes: [m6.24xlarge], zones: [zone-a], capacityType: onDemand,"
    few = ("podsPerCluster=400", "clusters=1", f"{supply} speculative: 12}}]")
    said = refusal("antiaffinity-50", *few)
    assert "pods of which no two may share a machine; the fleet has 12" in said


def test_a_gang_that_fits_no_rack_is_refused() -> None:
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
    assert "pods that must share a rack; the roomiest has" in refusal("mixed-50", *lean)


def test_scarcity_of_ordinary_machines_must_be_said_and_must_be_true() -> None:
    checked("spread-50", LITTLE, "fleet.scarce=true").raise_errors()
    assert "fleet.scarce: the fleet covers all demand" in refusal("spread-50", "fleet.scarce=true")
