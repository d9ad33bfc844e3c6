"""Each way to make two sides differ becomes two sides; what cannot be compared is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from loaddriver.compare.request import Ports, Request, pairs_of, session_spec
from loaddriver.compare.runner import ProcessRunner
from loaddriver.compare.state import SessionSpec
from loaddriver.compare.systems import kept_copy
from loaddriver.errors import InfrastructureError, ProfileError
from loaddriver.run.system import component_at


def component(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    return name, Path(f"/checked{path}")


PORTS = Ports(
    system=lambda revision: "" if revision == "." else f"/systems/{revision}",
    scheduler_config=lambda path: f"/checked/{path}",
    component=component,
)


def asked(**more: Any) -> SessionSpec:
    return session_spec(Request(profile="compare-50", **more), PORTS, 1)


def test_two_revisions_are_two_checkouts() -> None:
    found = asked(base="v1", head=".")
    assert (found.base.sut, found.head.sut) == ("/systems/v1", "")
    assert (found.base.label, found.head.label) == ("v1", "this checkout")
    assert (found.least_pairs, found.most_pairs) == (6, 16)
    assert found.least_effect == pytest.approx(1.1)


def test_the_same_revision_twice_shows_the_noise() -> None:
    assert asked(base="v1", head="v1").base.sut == "/systems/v1"


@pytest.mark.parametrize("more", [{}, {"head": "."}, {"kubernetes": "1.35.1,1.35.1"}])
def test_two_equal_sides_by_mistake_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ProfileError, match="both sides are the same"):
        asked(**more)


def test_a_fault_makes_two_equal_sides_differ() -> None:
    assert asked(inject="scheduled=+10%").inject == "scheduled=+10%"
    assert asked(base="v1", head="v1", inject="shard.cpu=+10%").head.sut == "/systems/v1"


def test_a_fault_beside_another_difference_is_refused() -> None:
    with pytest.raises(ProfileError, match="has to be their only difference"):
        asked(base="v1", head="v2", inject="scheduled=+10%")
    with pytest.raises(ProfileError, match="expected scheduled"):
        asked(inject="scheduled=10")
    with pytest.raises(ProfileError, match="leave out --component bigfleet"):
        asked(components=["bigfleet=/x,/x"], inject="shard.cpu=+10%")


def test_each_way_to_differ_reaches_its_side() -> None:
    found = asked(
        kubernetes="1.35.7,1.36.3",
        scheduler_config="a.yaml,b.yaml",
        components=["kube-scheduler=/x", "etcd=/e1,/e2"],
        overrides={"base": [], "head": ["bigfleet.cycleSeconds=2"]},
    )
    assert (found.base.kubernetes_version, found.head.kubernetes_version) == ("1.35.7", "1.36.3")
    assert found.base.scheduler_config == "/checked/a.yaml"
    assert found.base.components == {"etcd": "/checked/e1"}
    assert found.head.components == {"kube-scheduler": "/checked/x", "etcd": "/checked/e2"}
    runner = ProcessRunner(found, Path())
    assert "--component=etcd=/checked/e2" in runner.command(found.head, Path())
    assert found.head.overrides == ["bigfleet.cycleSeconds=2"]
    assert found.declared() == ["profile's settings"]
    assert "Kubernetes 1.36.3, b.yaml" in found.head.label
    assert "BigFleet" not in " ".join(found.head.differs())


def test_a_session_knows_the_folder_of_its_profile() -> None:
    """Resumed without it, it would go on with another profile of that name."""
    assert asked(head="v2", profiles="/own/profiles").profiles == "/own/profiles"
    assert asked(head="v2").profiles == ""


def test_a_side_is_named_by_what_it_alone_has() -> None:
    """Ten settings that both have would hide the one that is compared."""
    shared = ["clusters=1", "soak.seconds=60"]
    found = asked(
        scheduler_config="least.yaml,most.yaml",
        overrides={"base": shared, "head": [*shared, "bigfleet.cycleSeconds=2"]},
    )
    assert found.base.label == "this checkout, least.yaml"
    assert found.head.label == "this checkout, most.yaml, bigfleet.cycleSeconds=2"
    assert found.base.overrides == shared


@pytest.mark.parametrize(
    "more",
    [
        {"kubernetes": "1.35.7"},
        {"scheduler_config": "a.yaml,"},
        {"base": "v1", "pairs": "8..6"},
        {"base": "v1", "pairs": "1..6"},
        {"base": "v1", "pairs": "6..33"},
        {"base": "v1", "pairs": "many"},
        {"base": "v1", "least_effect_percent": 0.0},
    ],
)
def test_what_cannot_be_understood_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ProfileError):
        asked(**more)


def test_pairs_are_a_range_or_a_number() -> None:
    assert pairs_of("6..16") == (6, 16)
    assert pairs_of("8") == (8, 8)


def test_a_run_is_told_all_that_makes_its_side(tmp_path: Path) -> None:
    found = asked(
        base="v1",
        scheduler_config="a.yaml,b.yaml",
        kubernetes="1.35.7,1.36.3",
        seed=7,
        overrides={"base": ["soak.seconds=5"]},
    )
    runner = ProcessRunner(found, tmp_path / "profiles")
    command = " ".join(runner.command(found.base, tmp_path / "r"))
    for part in (
        "loaddriver run compare-50",
        "--sut /systems/v1",
        "--kubernetes-version 1.35.7",
        "--scheduler-config /checked/a.yaml",
        "--seed 7",
        "--set soak.seconds=5",
        f"--results {tmp_path / 'r'}",
    ):
        assert part in command
    other = " ".join(runner.command(found.head, tmp_path / "r"))
    assert "--sut" not in other
    assert "--set" not in other


def test_a_busy_machine_is_waited_for_and_then_given_up() -> None:
    """Other processes' CPU would be measured as the system's."""
    found, loads = asked(base="v1"), [0.9, 0.5, 0.05]
    ProcessRunner(found, Path(), busy=lambda _: loads.pop(0)).wait_until_quiet()
    assert loads == []
    moments = iter(range(0, 10_000, 400))
    busy = ProcessRunner(found, Path(), busy=lambda _: 0.9, clock=lambda: next(moments))
    with pytest.raises(InfrastructureError, match="90 % of this machine"):
        busy.wait_until_quiet()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("scheduler={path}", "expected NAME=PATH of kube-apiserver"),
        ("kube-scheduler={path}", "is no program"),
        ("kube-scheduler=/none,{path}", "is no program"),
        ("kube-scheduler", "is no program"),
    ],
)
def test_a_component_that_no_run_would_use_is_refused(
    given: str, said: str, tmp_path: Path
) -> None:
    """HEAD would be the pinned one, under the name of what was given."""
    own = tmp_path / "not-executable"
    own.write_text("")
    ports = dataclasses.replace(PORTS, component=component_at)
    request = Request(profile="compare-50", components=[given.format(path=own)])
    with pytest.raises(ProfileError, match=said):
        session_spec(request, ports, 1)


def test_a_scheduler_configuration_that_is_edited_meanwhile_changes_no_run(tmp_path: Path) -> None:
    """Each side has a copy, also of files with one name."""
    mine = [tmp_path / folder / "scheduler.yaml" for folder in ("a", "b")]
    for file in mine:
        file.parent.mkdir()
        file.write_text(file.parent.name)
    copies = [kept_copy(tmp_path / "kept", file) for file in mine]
    mine[0].write_text("edited")
    assert [copy.read_text() for copy in copies] == ["a", "b"]
