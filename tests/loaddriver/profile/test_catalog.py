from __future__ import annotations

from pathlib import Path

import pytest

from loaddriver.errors import ProfileError
from loaddriver.profile.catalog import pod_shares
from loaddriver.profile.instance_types import dedicated_machine
from loaddriver.profile.loading import load_catalog
from tests.loaddriver.load_rig import PROFILES, copied_profiles, edit


def load_error(folder: Path, name: str = "smoke") -> str:
    with pytest.raises(ProfileError) as caught:
        load_catalog(folder, name)
    return str(caught.value)


def test_the_catalog_has_the_ten_archetypes() -> None:
    names = [each.name for each in load_catalog(PROFILES, "smoke").archetypes]
    assert len(names) == len(set(names)) == 10


def test_a_machine_holds_exactly_its_density_of_pods() -> None:
    """Supply follows from the pod size, so no resource is left over or short."""
    catalog = load_catalog(PROFILES, "smoke")
    for archetype in catalog.archetypes:
        for size in archetype.sizes:
            shape = dedicated_machine(archetype, size, catalog.pricing)
            assert shape.cpu_millicores / size.cpu_millicores == archetype.density
            assert shape.memory_mebibytes / size.memory_mebibytes == archetype.density
            assert shape.pods == archetype.density + 10
            assert shape.dollars_per_hour > 0


def test_extended_resources_are_part_of_machine_and_price() -> None:
    catalog = load_catalog(PROFILES, "smoke")
    archetype = catalog.archetype("gpu-inference")
    shape = dedicated_machine(archetype, archetype.sizes[0], catalog.pricing)
    assert shape.quantities() == {
        "cpu": "64000m",
        "memory": "262144Mi",
        "pods": "18",
        "nvidia.com/gpu": "8",
    }
    assert shape.dollars_per_hour > 8 * catalog.pricing.dollars_per_gpu_hour


def test_smoke_has_one_archetype_of_each_kind() -> None:
    catalog = load_catalog(PROFILES, "smoke")
    kinds = [catalog.archetype(name).kind for name in pod_shares("smoke", catalog)]
    assert sorted(kinds) == ["Deployment", "Job", "StatefulSet"]


def test_weights_by_archetype_become_shares() -> None:
    catalog = load_catalog(PROFILES, "smoke")
    assert pod_shares({"cpu-batch": 3, "tiny-stateless": 1}, catalog) == {
        "tiny-stateless": 0.25,
        "cpu-batch": 0.75,
    }


def test_a_type_named_by_two_sizes_is_rejected(tmp_path: Path) -> None:
    """A dedicated machine holds pods of one size; the other size's pods would fill it."""
    folder = copied_profiles(tmp_path)
    edit(folder / "catalog.yaml", "instanceTypes: [m6a.large]", "instanceTypes: [m6i.large]")
    assert (
        "profiles/catalog.yaml: instanceTypes: m6i.large is named by more than one"
        in load_error(folder)
    )


def test_archetypes_with_equal_requests_may_share_a_type() -> None:
    """They compete for the same machines, and their pods can replace each other."""
    catalog = load_catalog(PROFILES, "scarcity-50")
    patient, urgent = catalog.archetype("patient"), catalog.archetype("urgent")
    assert patient.sizes == urgent.sizes
    assert patient.priority < urgent.priority


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  priority: 1000", "  priority: 1000\n  podsPerMachine: 50"),
        ("  priority: 1000", "  priority: 1000\n  zones: [zone-a]"),
        ("  priority: 1000", "  gang: {topology: sameRack, size: {min: 2, max: 3}}"),
    ],
)
def test_archetypes_that_differ_beyond_requests_cannot_share_a_type(
    tmp_path: Path, old: str, new: str
) -> None:
    """Density and zones define the machine, and other pods must not fill a gang's rack."""
    folder = copied_profiles(tmp_path)
    edit(folder / "scarcity-50/archetypes.yaml", old, new)
    assert "c6a.large is named by more than one pod size" in load_error(folder, "scarcity-50")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "share: 0.4, instanceTypes: [m6a.large]",
            "instanceTypes: [m6a.large]",
            "sum to 1.6, not 1",
        ),
        ("size: {min: 2, max: 8}", "size: {min: 9, max: 8}", "gang-training-small.gang.size"),
        ("    runSeconds: 600\n", "", "cpu-batch.runSeconds"),
        ("cpuMillicores: 400", "cpuCores: 400", "cpu is in thousandths of a core: cpuMillicores"),
        ("name: cpu-service", "name: Cpu_Service", "archetypes[1].name = 'Cpu_Service'"),
        (
            "runSeconds: 600",
            "runSeconds: 600\n    meanLifetimeSeconds: 9",
            "not allowed for Jobs; they have runSeconds",
        ),
        ("priority: 1000000\n", "priority: high\n", "archetypes[9].priority = 'high'"),
    ],
)
def test_mistakes_in_the_catalog_name_archetype_and_fix(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    folder = copied_profiles(tmp_path)
    edit(folder / "catalog.yaml", old, new)
    assert expected.replace("gang-training", "gpu-training") in load_error(folder)


def test_a_profile_folder_may_add_archetypes(tmp_path: Path) -> None:
    """An archetype with a known name replaces the common one."""
    folder = copied_profiles(tmp_path)
    common = load_catalog(folder, "smoke")
    (folder / "smoke/archetypes.yaml").write_text(
        """
- &mine
  name: mine
  kind: Deployment
  podsPerMachine: 5
  zones: [zone-a]
  priority: 7
  interruptionPenaltyDollars: 1
  reclamationPenaltyDollars: 1
  sizes: [{cpuMillicores: 100, memoryMebibytes: 64, instanceTypes: [mine.small]}]
- <<: *mine
  name: cpu-batch
  sizes: [{cpuMillicores: 100, memoryMebibytes: 64, instanceTypes: [mine.large]}]
"""
    )
    catalog = load_catalog(folder, "smoke")
    assert len(catalog.archetypes) == len(common.archetypes) + 1
    assert catalog.archetype("mine").priority == 7
    assert catalog.archetype("cpu-batch").kind == "Deployment"
    assert load_catalog(folder, "dev-50") == common


def test_a_profile_folder_may_replace_the_whole_catalog(tmp_path: Path) -> None:
    folder = copied_profiles(tmp_path)
    (folder / "smoke/catalog.yaml").write_text("archetypes: []")
    text = load_error(folder)
    assert "smoke/catalog.yaml: pricing is missing" in text
    assert "smoke/catalog.yaml: archetypes = []" in text
