"""A fault of a known size becomes a difference between the two sides, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from loaddriver.compare.evidence import Evidence
from loaddriver.compare.injection import Fault, Injection, injected, injection_of, seconds_of
from loaddriver.compare.state import SessionSpec, SideSpec
from loaddriver.errors import InfrastructureError, ProfileError
from loaddriver.profile.loading import PROFILES, load_profile
from loaddriver.profile.settings import ProfileSettings
from loaddriver.record.rows import PodRow
from tests.compare.compare_rig import CYCLE_MILLISECONDS, PARTS, run
from tests.judge.judge_rig import at, row
from tests.run.run_rig import summary


def settings(*overrides: str) -> ProfileSettings:
    return load_profile("compare-50", PROFILES, overrides, None).settings


def session(inject: str) -> SessionSpec:
    return SessionSpec(
        profile="compare-50",
        seed=1,
        least_pairs=6,
        most_pairs=16,
        least_effect=1.1,
        order_seed=1,
        base=SideSpec(label="main"),
        head=SideSpec(label="main"),
        inject=inject,
    )


def planted(inject: str, folder: Path, *overrides: str) -> SessionSpec:
    """The session with a fault of half a second; its kube-scheduler says what it is given."""
    scheduler = folder / "kube-scheduler"
    scheduler.write_text('#!/bin/sh\necho "v1.36.3 $@"\n')
    scheduler.chmod(0o755)
    return injected(
        session(inject), injection_of(inject), 0.5, settings(*overrides), scheduler, folder
    )


def waiting(uid: str, provisioned: float) -> PodRow:
    """A pod whose machine was decided on after a second, and provisioned then."""
    known = {"seen": 0.3, "acknowledged": 0.4, "rolled_up": 0.5, "decided": 1.0}
    reached = {**known, "provisioned": provisioned, "node_created": 5.0, "node_ready": 5.5}
    times = {f"{name}_micros": at(seconds) for name, seconds in reached.items()}
    return row(uid, bound=6, node_was_ready=False, **times)


def test_a_fault_is_a_name_and_a_share() -> None:
    assert injection_of("scheduled=+10%") == Injection(Fault.SCHEDULED, 0.1)
    assert injection_of("shard.cpu=+2.5%") == Injection(Fault.SHARD_CPU, 0.025)


@pytest.mark.parametrize("text", ["scheduled", "scheduled=10%", "bound=+10%", "scheduled=+0%"])
def test_what_cannot_be_injected_is_refused_with_what_can(text: str) -> None:
    with pytest.raises(ProfileError, match=r"expected scheduled=\+10%, provisioned=\+10%, shard"):
        injection_of(text)


def test_a_fault_is_a_share_of_what_the_warm_up_has_shown() -> None:
    warm_up = Evidence(Path("w"), summary(), run())
    late = seconds_of(injection_of("scheduled=+10%"), warm_up, [], settings())
    busy = seconds_of(injection_of("shard.cpu=+10%"), warm_up, [], settings())
    assert late == pytest.approx(0.1 * PARTS["scheduled"])
    assert busy == pytest.approx(0.1 * CYCLE_MILLISECONDS / 1000)


def test_only_pods_that_wait_for_a_creation_are_later_and_carry_the_whole_share() -> None:
    """One of four here, so its machine takes four times as much longer as the mean grows."""
    rows = [waiting("1", 1.1), waiting("2", 1.1), waiting("3", 1.1), waiting("4", 4.0)]
    warm_up = Evidence(Path("w"), summary(), run())
    mean = PARTS["provisioned"] + PARTS["nodeReady"]
    later = seconds_of(injection_of("provisioned=+10%"), warm_up, rows, settings())
    assert later == pytest.approx(4 * 0.1 * mean)


def test_a_warm_up_that_tells_nothing_ends_the_session_with_the_reason() -> None:
    void = Evidence(Path("w"), summary("invalid", 5), None)
    with pytest.raises(InfrastructureError, match="it is unknown what 10% of its times are"):
        seconds_of(injection_of("scheduled=+10%"), void, [], settings())
    nobody = Evidence(Path("w"), summary(), run())
    with pytest.raises(InfrastructureError, match="no pod waited in provisioned"):
        seconds_of(injection_of("provisioned=+10%"), nobody, [], settings())


@pytest.mark.parametrize(
    ("latency", "later"), [("2", "2.5"), ("{median: 2, p99: 6}", "{median: 2.5, p99: 6.5}")]
)
def test_a_slow_provider_is_a_setting_of_head(latency: str, later: str, tmp_path: Path) -> None:
    found = planted("provisioned=+10%", tmp_path, f"fleet.latency.createSeconds={latency}")
    assert found.head.overrides == [f"fleet.latency.createSeconds={later}"]
    assert settings(*found.head.overrides)
    assert found.base == SideSpec(label="main")
    assert found.declared() == ["profile's settings"]


@pytest.mark.parametrize("inject", ["scheduled=+10%", "shard.cpu=+10%"])
def test_both_sides_have_the_same_programs_but_for_the_fault(inject: str, tmp_path: Path) -> None:
    """What stands in for a component costs something itself."""
    found = planted(inject, tmp_path)
    programs = []
    for side in (found.base, found.head):
        [path] = side.components.values()
        programs.append(Path(path).read_text())
    assert programs[0].replace(" 0 ", " 0.5 ") == programs[1] != programs[0]
    assert (found.base.label, found.head.label) == ("main", f"main, {inject}")


def test_a_stand_in_has_the_version_of_its_component(tmp_path: Path) -> None:
    found = planted("scheduled=+10%", tmp_path)
    said = subprocess.run(
        [found.head.components["kube-scheduler"], "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "v1.36.3 --version\n"


def test_a_stand_in_runs_in_a_checkout_whose_path_has_a_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "my checkout" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    found = planted("scheduled=+10%", tmp_path)
    program = found.head.components["kube-scheduler"]
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == "v1.36.3 --version\n"


def test_a_busy_bigfleet_is_the_checkouts_own(tmp_path: Path) -> None:
    found = planted("shard.cpu=+10%", tmp_path)
    said = subprocess.run(
        [found.head.components["bigfleet"], "shard", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "usage: bigfleet shard" in said.stdout
