"""An image has BigFleet and its packages as plain files, which a runner must find all the same."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from loaddriver.run import host
from loaddriver.run.context import RunOptions
from loaddriver.substrates.choice import SubstrateName

VARIABLES = {"PATH": "/bin", "PYTHONPATH": "/opt/packages", "OTHER": "1"}


def inherited(substrate: SubstrateName) -> dict[str, str]:
    options = RunOptions("smoke", Path(), Path(), VARIABLES, substrate=substrate)
    return options.child_environment()


def test_the_load_finds_the_packages_of_an_image() -> None:
    assert inherited(SubstrateName.PODS)["PYTHONPATH"] == "/opt/packages"


def test_elsewhere_a_users_packages_change_no_run() -> None:
    assert "PYTHONPATH" not in inherited(SubstrateName.LOCAL)


def test_a_package_that_is_not_installed_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "bigfleet":
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    assert host.python_versions()["bigfleet"] == "not installed"
    assert host.python_versions()["locust"] == "1.0"
