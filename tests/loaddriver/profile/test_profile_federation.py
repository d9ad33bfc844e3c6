"""A federation that cannot be played is refused with the key that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaddriver.errors import ProfileError
from loaddriver.profile.settings import load_profile
from tests.loaddriver.load_rig import PROFILES, copied_profiles, edit, shipped

NAME = "fedhpa-3"
FILE = f"{NAME}/profile.yaml"


def refusal(folder: Path, *overrides: str) -> str:
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
    assert "HPAs need metrics; write resource" in refusal(PROFILES, "metrics=none")


def test_a_misspelt_key_within_a_phase_is_named_with_its_path(tmp_path: Path) -> None:
    folder = copied_profiles(tmp_path)
    edit(folder / FILE, "partitioned: c3", "partitoned: c3")
    text = refusal(folder)
    assert "federation.phases.partition.cutOf unknown key" in text


def test_a_cluster_that_there_is_not_is_named_wherever_it_stands() -> None:
    text = refusal(
        PROFILES,
        "federation.onPremise.cluster=c9",
        "federation.phases.partition.partitioned=c8",
    )
    assert "federation.onPremise.cluster = 'c9': no such cluster: they are c1, c2, c3" in text
    assert "federation.phases.partition.partitioned = 'c8': no such cluster" in text


def test_the_first_phase_says_what_every_cluster_gets(tmp_path: Path) -> None:
    folder = copied_profiles(tmp_path)
    edit(
        folder / FILE,
        "{at: 0, cores: {c1: 0.675, c2: 0.925, c3: 0.425}}",
        "{at: 0, cores: {c1: 1}}",
    )
    assert "must begin with a step `at: 0` that names the cores of every cluster" in refusal(folder)


def test_every_cluster_gets_a_replica_at_least() -> None:
    text = refusal(PROFILES, "federation.minReplicas=2")
    assert "federation.minReplicas = 2: must be from clusters to maxReplicas" in text


def test_machines_on_premise_that_others_fill_are_refused() -> None:
    text = refusal(PROFILES, "federation.onPremise.machines=1")
    assert "federation.onPremise.machines = 1: others' 4 pods fill it" in text


def test_an_archetype_without_deployments_cannot_be_federated() -> None:
    text = refusal(PROFILES, "federation.archetype=cpu-batch")
    assert "no archetype of Deployments is called so" in text
