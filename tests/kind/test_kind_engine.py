from __future__ import annotations

from pathlib import Path

import pytest

from kind.engine import PROVIDER_VARIABLE, find_engine
from kind.errors import KindError, KindUsageError
from tests.kind.kind_rig import Machine

ANSWERS, SILENT = "echo '{}'", "echo 'no daemon' >&2; exit 1"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_docker_comes_first_where_both_answer(machine: Machine) -> None:
    machine.has("docker", ANSWERS)
    machine.has("podman", ANSWERS)
    assert find_engine(machine.environment, machine.root).name == "docker"


def test_a_docker_client_without_its_daemon_is_no_engine(machine: Machine) -> None:
    machine.has("docker", 'test "$1" = --version')
    machine.has("podman", ANSWERS)
    assert find_engine(machine.environment, machine.root).name == "podman"


def test_kinds_own_variable_names_the_engine(machine: Machine) -> None:
    machine.has("docker", ANSWERS)
    podman = machine.has("podman", ANSWERS)
    found = find_engine({**machine.environment, PROVIDER_VARIABLE: "podman"}, machine.root)
    assert found.path == podman
    assert machine.calls == ["podman info --format {{json .}}"]


def test_children_are_told_which_engine_was_chosen(machine: Machine) -> None:
    machine.has("podman", ANSWERS)
    assert find_engine(machine.environment, machine.root).environment[PROVIDER_VARIABLE] == "podman"


def test_a_users_own_podman_settings_are_left_alone(machine: Machine) -> None:
    machine.has("podman", ANSWERS)
    found = find_engine({**machine.environment, "CONTAINERS_CONF": "/mine"}, machine.root)
    assert found.environment["CONTAINERS_CONF"] == "/mine"


def test_without_an_engine_one_line_says_what_to_install(machine: Machine) -> None:
    machine.has("docker", SILENT)
    with pytest.raises(KindError) as caught:
        find_engine(machine.environment, machine.root)
    message = str(caught.value)
    assert "`docker info` fails" in message
    assert "podman is not installed" in message
    assert "install" in message
    assert "\n" not in message


def test_a_podman_that_lacks_a_helper_names_the_helper(machine: Machine) -> None:
    machine.has("podman", SILENT)
    machine.has("iptables")
    with pytest.raises(KindError, match="runc is missing: install it"):
        find_engine(machine.environment, machine.root)


def test_an_engine_that_is_none_is_a_usage_error(machine: Machine) -> None:
    with pytest.raises(KindUsageError, match="docker, podman"):
        find_engine({**machine.environment, PROVIDER_VARIABLE: "nerdctl"}, machine.root)


def test_an_engines_failure_shows_the_command_and_its_last_lines(machine: Machine) -> None:
    engine = machine.engine("echo one >&2; echo two >&2; exit 3")
    with pytest.raises(KindError) as caught:
        engine.run("rmi", "a image")
    assert str(caught.value).splitlines()[0].endswith("rmi 'a image'` failed: last lines:")
    assert str(caught.value).splitlines()[1:] == ["  one", "  two"]


def test_an_image_that_cannot_be_pulled_is_said_and_not_there(machine: Machine) -> None:
    lines: list[str] = []
    assert not machine.engine("exit 1").can_pull("docker.io/a:1", lines.append)
    assert lines[0] == "pulling docker.io/a:1"
    assert "building one" in lines[1]


def test_an_image_that_is_there_is_not_pulled(machine: Machine) -> None:
    engine = machine.engine('test "$1" = image')
    assert engine.can_pull("docker.io/a:1", lambda _: None)
    assert not any(call.startswith("podman pull") for call in machine.calls)
