from __future__ import annotations

import pytest

from loaddriver.errors import InfrastructureError, ProfileError
from loaddriver.sizing.estimate import GIBIBYTE, HostCapacity
from loaddriver.sizing.inventory import fleet_inventory
from loaddriver.sizing.preflight import Preflight, preflight
from tests.loaddriver.load_rig import SHIPPED, SPECIAL, planned

TEST_MACHINE = HostCapacity(
    cores=2, memory_available_bytes=20 * GIBIBYTE, disk_free_bytes=20 * GIBIBYTE
)


def checked(name: str, *overrides: str, host: HostCapacity = TEST_MACHINE) -> Preflight:
    profile, _, need = planned(name, *overrides)
    return preflight(profile, need, fleet_inventory(profile, need), host)


@pytest.mark.parametrize("name", [*SHIPPED, *SPECIAL])
def test_every_shipped_profile_fits_two_cores_and_20_gib(name: str) -> None:
    checked(name).raise_errors()


def test_demand_and_estimate_are_printed() -> None:
    lines = checked("dev-50").lines
    rows = {line.rsplit(maxsplit=6)[0].strip(): line.split()[-6:] for line in lines[2:-1]}
    assert "5,000 pods in 2 clusters, 15." in lines[0]
    assert rows["tiny-stateless on m6i.large"] == ["2182", "22", "22", "14", "36", "0"]
    assert rows["all"][:3] == ["5000", "58", "62"]
    assert "estimate: about 2.9 GiB memory" in lines[-1]
    assert all(len(line) <= 80 for line in lines)


def test_supply_below_demand_names_size_numbers_and_key() -> None:
    with pytest.raises(ProfileError) as caught:
        checked("dev-50", "fleet.speculativeFactor=0").raise_errors()
    assert (
        "tiny-stateless on m6i.large needs 22 machines at its peak, the fleet has 14; "
        "raise fleet.speculativeFactor to at least 0.4"
    ) in str(caught.value)


def test_supply_must_cover_the_peak_of_demand() -> None:
    """A burst needs machines although it ends; the fleet is sized by the peak."""
    when = "phase: soak, atSeconds: 1, durationSeconds: 9"
    burst = f"bursts=[{{{when}, archetype: memory-cache, pods: 900}}]"
    lines = checked("dev-50", burst).lines
    assert "5,900 pods at the peak in 2 clusters" in lines[0]
    lean = ("fleet.idleFactor=0.9", "fleet.speculativeFactor=0")
    with pytest.raises(ProfileError, match=r"memory-cache on .* machines at its peak, the fleet"):
        checked("dev-50", burst, *lean).raise_errors()


def test_scarcity_must_be_declared_and_real() -> None:
    """Less supply than demand is an error unless declared; so is a declaration without it."""
    checked("scarcity-50").raise_errors()
    with pytest.raises(ProfileError, match=r"patient on c6a\.large needs 38 machines"):
        checked("scarcity-50", "fleet.scarce=false").raise_errors()
    with pytest.raises(ProfileError, match=r"fleet\.scarce: the fleet covers all demand"):
        checked("scarcity-50", "fleet.idleFactor=1").raise_errors()


def test_gangs_that_fit_no_rack_are_rejected() -> None:
    """There are enough machines in total, but no rack has enough for a gang."""
    overrides = ("weights={gpu-training-small: 1, tiny-stateless: 1}", "podsPerCluster=200")
    lean = ("fleet.idleFactor=1", "fleet.speculativeFactor=0", "fleet.machinesPerRack=8")
    with pytest.raises(ProfileError, match=r"\d+ of \d+ gpu-training-small gangs .* fit no rack"):
        checked("smoke", *overrides, *lean).raise_errors()
    checked("smoke", *overrides, "fleet.machinesPerRack=8").raise_errors()


def test_a_ramp_that_cannot_bind_within_its_budget_is_rejected() -> None:
    tight = ("ramp.budgetSeconds=100", "ramp.stepSeconds=1")
    with pytest.raises(ProfileError, match=r"ramp\.budgetSeconds = 100: binding 50000 pods"):
        checked("dev-500", *tight).raise_errors()


@pytest.mark.parametrize(
    ("host", "what"),
    [
        (HostCapacity(2, 4 * GIBIBYTE, 20 * GIBIBYTE), "of memory, this machine has 4.0 GiB free"),
        (HostCapacity(2, 20 * GIBIBYTE, GIBIBYTE // 2), "of disk, this machine has 0.5 GiB free"),
    ],
)
def test_insufficient_memory_or_disk_is_an_infrastructure_error_in_one_line(
    host: HostCapacity, what: str
) -> None:
    with pytest.raises(InfrastructureError) as caught:
        checked("dev-500", host=host).raise_errors()
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)
