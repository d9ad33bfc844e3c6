"""BigFleet's processes can come from another checkout, and the result says from which."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

import pytest
import yaml

from loaddriver.__main__ import main
from loaddriver.errors import ExitCode, ProfileError
from loaddriver.run.system import scheduler_config_at, system_at
from loaddriver.substrates.components import write_scheduler_configuration


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with an environment of its own."""
    root = tmp_path / "other"
    (root / "bigfleet").mkdir(parents=True)
    (root / "bigfleet" / "__init__.py").write_text("")
    (root / "bigfleet" / "__main__.py").write_text("import sys; print('another', sys.argv[1])\n")
    venv.EnvBuilder(symlinks=True).create(root / ".venv")
    (packages,) = (root / ".venv" / "lib").glob("python*/site-packages")
    (packages / "bigfleet.pth").write_text(f"{root}\n")
    return root


def test_a_role_of_another_checkout_is_that_of_its_environment(checkout: Path) -> None:
    """Whatever the working directory, which is the harness's and has a BigFleet of its own."""
    system = system_at(checkout, os.environ)
    said = subprocess.run([*system.command, "shard"], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "another shard"


def test_an_environment_of_another_checkout_is_refused(checkout: Path) -> None:
    """One that was copied would silently measure the checkout that it was copied from."""
    (checkout / "bigfleet").rename(checkout.parent / "bigfleet")
    (packages,) = (checkout / ".venv" / "lib").glob("python*/site-packages")
    (packages / "bigfleet.pth").write_text(f"{checkout.parent}\n")
    with pytest.raises(ProfileError, match=r"its \.venv has the BigFleet of"):
        system_at(checkout, os.environ)


def test_a_checkout_without_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="run `make setup` there"):
        system_at(tmp_path, os.environ)
    assert main(["run", "smoke", "--sut", str(tmp_path)]) == ExitCode.USAGE


def test_a_given_configuration_keeps_the_schedulers_access(tmp_path: Path) -> None:
    """Profiles and client limits are the user's; access and leader election are the harness's."""
    given, written = tmp_path / "given.yaml", tmp_path / "written.yaml"
    profiles = [{"schedulerName": "default-scheduler", "percentageOfNodesToScore": 100}]
    given.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": profiles,
                "clientConnection": {"qps": 8, "kubeconfig": "/etc/theirs"},
                "leaderElection": {"leaderElect": True},
            }
        )
    )
    write_scheduler_configuration(written, tmp_path / "kubeconfig", scheduler_config_at(given))
    found = yaml.safe_load(written.read_text())
    assert found["profiles"] == profiles
    connection = found["clientConnection"]
    assert connection["kubeconfig"] == str(tmp_path / "kubeconfig")
    assert connection["qps"] == 8
    assert connection["burst"] > 8  # not given, so the harness's
    assert found["leaderElection"] == {"leaderElect": False}


@pytest.mark.parametrize(
    "content",
    ["- a list", "kind: Pod", "a: [", "", "kind: KubeSchedulerConfiguration\nclientConnection: 8"],
)
def test_what_is_no_configuration_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "given.yaml"
    path.write_text(content)
    with pytest.raises(ProfileError, match=r"given\.yaml"):
        scheduler_config_at(path)
