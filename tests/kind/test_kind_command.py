"""`python -m kind` on a machine of scripts: kind and the engine only note what they were asked."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import kind.cluster
from kind.__main__ import INFRASTRUCTURE_FAILED, USAGE_ERROR, main
from kind.host_settings import restore_host_settings, shared_host_lock
from tests.kind.kind_rig import Machine

# A kind whose clusters are files; `create` fails as told by the machine's folder.
KIND = """\
clusters="{root}/clusters"; mkdir -p "$clusters"
for argument in "$@"; do
  case "$argument" in
    --name=*) name="${{argument#--name=}}" ;;
    --kubeconfig=*) kubeconfig="${{argument#--kubeconfig=}}" ;;
  esac
done
case "$1 $2" in
  "--version ") echo "kind version 0.33.0" ;;
  "get clusters") ls "$clusters" ;;
  "delete cluster") rm -f "$clusters/$name" ;;
  "create cluster")
    touch "$clusters/$name" "$kubeconfig"
    if [ -e "{root}/fails" ]; then
      echo "Creating cluster"; echo "ERROR: no disk"; echo "  at line 3"; exit 1
    fi ;;
esac
"""
PODMAN = """\
case "$1 $2" in
  "image inspect") case "$*" in *localhost*) exit 1 ;; esac ;;
esac
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """kind's own image is there, the host's settings are a folder's."""
    made = Machine(tmp_path)
    made.has("kind", KIND.format(root=tmp_path))
    made.has("podman", PODMAN)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("KIND_EXPERIMENTAL_PROVIDER", "podman")
    monkeypatch.delenv("KUBERNETES_VERSION", raising=False)
    monkeypatch.delenv("CONTAINERS_CONF", raising=False)
    for function in (shared_host_lock, restore_host_settings):
        on_host = partial(function, root=tmp_path / "host")
        monkeypatch.setattr(kind.cluster, function.__name__, on_host)
    boot = tmp_path / "host/proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("1\n")
    return made


def run(machine: Machine, *arguments: str) -> int:
    return main([*arguments, f"--cache={machine.root / 'cache'}"])


def test_up_makes_a_cluster_and_says_where_its_kubeconfig_is(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(machine, "up") == 0
    kubeconfig = machine.root / "cache/kind/bigfleet.kubeconfig"
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == f"kind-up: bigfleet is up; export KUBECONFIG={kubeconfig}"
    [created] = [call for call in machine.calls if call.startswith("kind create")]
    assert "--image=docker.io/kindest/node:" in created


def test_up_a_second_time_makes_nothing(machine: Machine) -> None:
    assert run(machine, "up") == run(machine, "up") == 0
    assert len([call for call in machine.calls if call.startswith("kind create")]) == 1


def test_a_cluster_that_fails_leaves_its_logs_and_nothing_else(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine.root / "fails").touch()
    assert run(machine, "up") == INFRASTRUCTURE_FAILED
    said = capsys.readouterr().err
    assert "creating the kind cluster bigfleet failed: ERROR: no disk; log: " in said
    assert "at line 3" not in said
    assert any(call.startswith("kind export logs") for call in machine.calls)
    assert list((machine.root / "clusters").iterdir()) == []
    assert not (machine.root / "cache/kind/host-settings.json").exists()


def test_down_ends_the_cluster_and_says_so(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    run(machine, "up")
    assert run(machine, "down") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "kind-down: bigfleet is deleted"
    assert list((machine.root / "clusters").iterdir()) == []
    assert "podman network rm kind" in machine.calls


def test_down_without_a_cluster_is_no_failure(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(machine, "down") == 0
    assert capsys.readouterr().out == "kind-down: cluster bigfleet does not exist\n"


def test_while_another_cluster_is_up_its_network_and_settings_stay(machine: Machine) -> None:
    run(machine, "up")
    run(machine, "up", "--name=other")
    assert run(machine, "down") == 0
    assert "podman network rm kind" not in machine.calls
    assert (machine.root / "cache/kind/host-settings.json").exists()


def test_while_another_process_starts_a_cluster_nothing_is_put_back(machine: Machine) -> None:
    run(machine, "up")
    state = machine.root / "cache/kind/host-settings.json"
    with shared_host_lock(state, machine.root / "host"):
        assert run(machine, "down") == 0
        assert state.exists()
    assert "podman network rm kind" not in machine.calls
    assert run(machine, "down") == 0
    assert not state.exists()


def test_several_nodes_without_a_name_service_are_refused_before_anything_starts(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.has("podman", f'{PODMAN}\ncase "$1" in info) echo cni ;; esac')
    monkeypatch.setattr("kind.network.PLUGIN_DIRECTORIES", ())
    assert run(machine, "up", "--nodes=several") == INFRASTRUCTURE_FAILED
    assert "dnsname plugin, which is missing: install it" in capsys.readouterr().err
    assert not any(call.startswith("kind create") for call in machine.calls)


def test_without_an_engine_the_exit_code_is_infrastructures(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.has("podman", "exit 1")
    assert run(machine, "up") == INFRASTRUCTURE_FAILED
    assert capsys.readouterr().err.startswith("error: no container engine responds")


def test_a_version_that_cannot_be_meant_is_a_usage_error(machine: Machine) -> None:
    assert run(machine, "up", "--kubernetes-version=latest") == USAGE_ERROR
