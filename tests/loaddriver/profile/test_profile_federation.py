"""An invalid federation is rejected; the error names the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaddriver.errors import ProfileError
from loaddriver.profile.loading import load_profile
from tests.loaddriver.load_rig import PROFILES, copied_profiles, edit, shipped

NAME = "fedhpa-3"
FILE = f"{NAME}/profile.yaml"


def load_error(folder: Path, *overrides: str) -> str:
    with pytest.raises(ProfileError) as caught:
        load_profile(NAME, folder, overrides)
    return str(caught.value)


def test_the_soak_lasts_as_long_as_the_phases_and_its_own_seconds() -> None:
    settings = shipped(NAME).settings
    assert settings.federation is not None
    assert settings.soak.seconds == settings.federation.seconds + 5


def test_a_phase_can_be_made_shorter_from_the_command_line() -> None:
    long, short = shipped(NAME), shipped(NAME, "federation.phases.outage.seconds=40")
    assert long.settings.soak.seconds - short.settings.soak.seconds == 260


def test_a_federation_needs_metrics() -> None:
    assert "HPAs need metrics; write resource" in load_error(PROFILES, "metrics=none")


def test_a_misspelt_key_within_a_phase_is_named_with_its_path(tmp_path: Path) -> None:
    folder = copied_profiles(tmp_path)
    edit(folder / FILE, "partitioned: c3", "partitoned: c3")
    text = load_error(folder)
    assert "federation.phases.partition.partitoned unknown key" in text


def test_an_unknown_cluster_is_reported_wherever_it_is_named() -> None:
    text = load_error(
        PROFILES,
        "federation.onPremise.cluster=c9",
        "federation.phases.partition.partitioned=c8",
    )
    assert "federation.onPremise.cluster = 'c9': no such cluster (known: c1, c2, c3)" in text
    assert "federation.phases.partition.partitioned = 'c8': no such cluster" in text


def test_the_first_phase_sets_the_cores_of_every_cluster(tmp_path: Path) -> None:
    folder = copied_profiles(tmp_path)
    edit(
        folder / FILE,
        "{at: 0, cores: {c1: 0.675, c2: 0.925, c3: 0.425}}",
        "{at: 0, cores: {c1: 1}}",
    )
    assert "must begin with a step `at: 0` that names the cores of every cluster" in load_error(
        folder
    )


def test_every_cluster_gets_at_least_one_replica() -> None:
    text = load_error(PROFILES, "federation.minReplicas=2")
    assert "federation.minReplicas = 2: must be between clusters and maxReplicas" in text


def test_on_premise_machines_filled_by_other_workloads_are_rejected() -> None:
    text = load_error(PROFILES, "federation.onPremise.machines=1")
    assert "federation.onPremise.machines = 1: the 4 pods of other workloads fill them" in text


def test_an_archetype_without_deployments_cannot_be_federated() -> None:
    text = load_error(PROFILES, "federation.archetype=cpu-batch")
    assert "no such archetype of Deployments" in text
