"""An image has BigFleet and its packages as plain files, which a runner must find all the same."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from loaddriver.run import host
from loaddriver.run.context import RunOptions
from loaddriver.substrates.choice import SubstrateName

VARIABLES = {"PATH": "/bin", "PYTHONPATH": "/opt/packages", "OTHER": "1"}


POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def inherited(substrate: SubstrateName, **variables: str) -> dict[str, str]:
    environment = {**VARIABLES, **variables}
    options = RunOptions("smoke", Path(), Path(), environment, substrate=substrate)
    return options.child_environment()


def test_the_load_finds_the_packages_of_an_image() -> None:
    """Also where the cluster that the pod is in is measured."""
    assert inherited(SubstrateName.PODS)["PYTHONPATH"] == "/opt/packages"
    assert inherited(SubstrateName.EXISTING, **POD)["PYTHONPATH"] == "/opt/packages"


def test_elsewhere_a_users_packages_change_no_run() -> None:
    assert "PYTHONPATH" not in inherited(SubstrateName.LOCAL, **POD)
    assert "PYTHONPATH" not in inherited(SubstrateName.EXISTING)


def test_a_package_that_is_not_installed_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "bigfleet":
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    assert host.python_versions()["bigfleet"] == "not installed"
    assert host.python_versions()["locust"] == "1.0"
