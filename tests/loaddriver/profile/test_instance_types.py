"""Shared machines: their allocatable resources, their prices, and the sizes of pods."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaddriver.errors import ProfileError
from loaddriver.profile.archetypes import SizeQuantiles, sizes_of
from loaddriver.profile.catalog import Catalog
from loaddriver.profile.instance_types import InstanceType, instance_type_labels, shared_machine
from loaddriver.profile.loading import load_catalog, load_profile
from tests.loaddriver.load_rig import PROFILES, copied_profiles, edit


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog(PROFILES, "mixed-50", "mixed")


def instance_type(catalog: Catalog, name: str) -> InstanceType:
    return next(each for each in catalog.instance_types if each.name == name)


def load_error(folder: Path, name: str = "mixed-50") -> str:
    with pytest.raises(ProfileError) as caught:
        load_profile(name, folder)
    return str(caught.value)


def test_types_range_from_2_to_96_vcpus_at_three_ratios_in_two_generations_and_with_gpus(
    catalog: Catalog,
) -> None:
    plain = [each for each in catalog.instance_types if not each.gpus]
    assert {each.vcpus for each in plain} == {2, 4, 8, 16, 32, 48, 64, 96}
    assert {each.memory_gibibytes / each.vcpus for each in plain} == {2, 4, 8}
    assert {each.generation for each in plain} == {6, 7}
    assert {each.gpus for each in catalog.instance_types} == {0, 1, 4, 8}


def test_the_system_reserves_cpu_by_vcpu_and_memory_by_pod_slot(catalog: Catalog) -> None:
    """60m, 10m, 5m, 5m and 2.5m for each further vCPU; 255 MiB, 11 for each pod, and 100."""
    assert catalog.system_reserved is not None
    small = shared_machine(
        instance_type(catalog, "m6.large"), catalog.system_reserved, catalog.pricing
    )
    assert (small.cpu_millicores, small.memory_mebibytes) == (2000 - 70, 8192 - 1565)
    large = shared_machine(
        instance_type(catalog, "m6.24xlarge"), catalog.system_reserved, catalog.pricing
    )
    assert large.cpu_millicores == 96000 - 80 - 230
    assert large.pods == 110
    assert large.quantities()["pods"] == "110"


def test_a_price_follows_from_the_resources_unless_the_type_has_its_own(catalog: Catalog) -> None:
    assert catalog.system_reserved is not None

    def price(name: str) -> float:
        own = instance_type(catalog, name)
        return shared_machine(own, catalog.system_reserved, catalog.pricing).dollars_per_hour  # type: ignore[arg-type]

    assert price("m6.large") == pytest.approx(2 * 0.033 + 8 * 0.0042, abs=1e-4)
    assert price("m7.large") == pytest.approx(1.05 * price("m6.large"), rel=1e-3)
    assert price("g6.24xlarge") > 8 * catalog.pricing.dollars_per_gpu_hour


def test_nodes_are_labelled_with_family_and_generation(catalog: Catalog) -> None:
    labels = instance_type_labels(instance_type(catalog, "g6.2xlarge"))
    assert labels["scaletest.bigfleet/instance-family"] == "g6"
    assert labels["scaletest.bigfleet/instance-generation"] == "6"
    assert labels["scaletest.bigfleet/accelerator"] == "nvidia"


def test_quantiles_become_sizes_of_equal_share_that_people_would_write() -> None:
    """The middle size is the median; amounts are round; shares sum to 1."""
    quantiles = SizeQuantiles(
        count=101,
        levels=(0, 0.5, 1),
        cpu_millicores=(10, 100, 10000),
        gibibytes_per_core=(4, 4, 4),
    )
    sizes = sizes_of(quantiles)
    assert sum(size.share for size in sizes) == pytest.approx(1)
    cpu = [size.cpu_millicores for size in sizes for _ in range(round(size.share * 101))]
    assert cpu[50] == 100
    assert cpu == sorted(cpu)
    assert cpu[0] == 10
    assert 9000 <= cpu[-1] <= 10000
    assert all(size.memory_mebibytes % 16 == 0 for size in sizes)
    assert len(sizes) < 101, "small sizes that round to the same value are merged"


def test_memory_does_not_follow_from_cpu() -> None:
    """Both small and large pods may request little or much memory."""
    quantiles = SizeQuantiles(
        count=200,
        levels=(0, 1),
        cpu_millicores=(1000, 64000),
        gibibytes_per_core=(1, 8),
    )
    sizes = sizes_of(quantiles)
    for half in (sizes[: len(sizes) // 2], sizes[len(sizes) // 2 :]):
        ratios = [size.memory_mebibytes / 1024 / (size.cpu_millicores / 1000) for size in half]
        assert min(ratios) < 1.5
        assert max(ratios) > 6


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: c6.xlarge,", "name: c6.large,", "instanceTypes: c6.large is a duplicate name"),
        ("vcpus: 2, memoryGibibytes: 4}", "cpus: 2, memoryGibibytes: 4}", "did you mean vcpus"),
        (
            "vcpus: 2, memoryGibibytes: 4}",
            "vcpus: 2, memoryGibibytes: 1}",
            "c6.large leaves 1930m CPU and -541 MiB to pods; lower systemReserved",
        ),
        (
            "    weights: {mixed: 340, plain: 100}",
            "    weights: {mixed: 340, plain: 100}\n    podsPerMachine: 5",
            "default-service.podsPerMachine = 5: this catalog has shared machines",
        ),
        (
            "{cpuMillicores: 8000, memoryMebibytes: 65536, share: 0.5}",
            "{cpuMillicores: 8000, memoryMebibytes: 65536, share: 0.5, instanceTypes: [m6.large]}",
            "large.sizes[0].instanceTypes need dedicated machines; with shared ones",
        ),
        (
            "levels: [0, 0.58, 0.81, 0.93, 0.99, 1]",
            "levels: [0, 0.58, 0.5, 0.93, 0.99, 1]",
            "service.sizeQuantiles.levels = [0.0, 0.58, 0.5, 0.93, 0.99, 1.0]: must increase",
        ),
        (
            "cpuMillicores: [20, 250, 500, 1000, 3000, 8000]",
            "cpuMillicores: [20, 250]",
            "sizeQuantiles.cpuMillicores has 2 values for 6 levels",
        ),
        ("{share: 0.47, min: 1", "{share: 0.4, min: 1", "replicas have shares that sum to 0.93"),
        ("min: 2, max: 15}]", "min: 20, max: 15}]", "kept-apart.replicas[0] has min above max"),
        (
            "  - {<<: *agent, name: logs,",
            "  - {<<: *agent,",
            "daemonSets: network is a duplicate name",
        ),
        ("effect: NoSchedule}]\n  - {<<", "effect: Never}]\n  - {<<", "taints[0].effect = 'Never'"),
    ],
)
def test_mistakes_with_shared_machines_name_key_value_and_fix(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    folder = copied_profiles(tmp_path)
    edit(folder / "mixed.yaml", old, new)
    assert expected in load_error(folder)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "catalog: mixed",
            "catalog: mixd",
            "no profiles/mixd.yaml; did you mean mixed?",
        ),
        ("catalog: mixed", "catalog: 7", "catalog = 7: expected str"),
        (
            "  machinesPerRack",
            "  idleFactor: 1\n  machinesPerRack",
            "fleet.idleFactor = 1: ",
        ),
        ("families: [c6, m6, r6]", "families: [c6, x6]", "supply[1].families = 'x6': no such fam"),
        (
            "instanceTypes: [m6.4xlarge]",
            "instanceTypes: [m6.5xlarge]",
            "m6.5xlarge': no such type",
        ),
        ("      idle: 2\n", "", "fleet.supply[2] has no machines; add idle or speculative"),
        ("capacityType: spot", "capacityType: cheap", "fleet.supply[1].capacityType = 'cheap'"),
        (
            'anchors: "off"',
            'anchors: "off"\nload: {mode: cr}',
            "load.mode = 'cr': the load's CapacityRequests",
        ),
    ],
)
def test_mistakes_in_the_supply_of_shared_machines_name_key_value_and_fix(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    folder = copied_profiles(tmp_path)
    edit(folder / "mixed-50/profile.yaml", old, new)
    assert expected in load_error(folder)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "    podsPerMachine: 100\n    zones",
            "    zones",
            "podsPerMachine is missing",
        ),
        (
            "    priority: 100\n",
            "    priority: 100\n    antiAffinity: hostname\n",
            "antiAffinity",
        ),
        (", instanceTypes: [m6a.large]}", "}", "tiny-stateless.sizes[1].instanceTypes is missing"),
        ("    interruptionPenaltyDollars: 32\n", "", "interruptionPenaltyDollars is missing"),
    ],
)
def test_keys_that_dedicated_machines_need_are_required(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    folder = copied_profiles(tmp_path)
    edit(folder / "catalog.yaml", old, new)
    assert expected in load_error(folder, "smoke")


def test_a_fleet_of_dedicated_machines_needs_factors_and_rejects_supply(
    tmp_path: Path,
) -> None:
    folder = copied_profiles(tmp_path)
    edit(
        folder / "smoke/profile.yaml",
        "  idleFactor: 1\n",
        "  supply: [{families: [m6], zones: [zone-a], capacityType: spot, idle: 1}]\n",
    )
    error = load_error(folder, "smoke")
    assert "fleet.idleFactor is missing" in error
    assert "fleet.supply is for catalogs with instanceTypes" in error
