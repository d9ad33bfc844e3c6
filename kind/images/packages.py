"""Python packages for an image, installed into a folder on the host and checked by their hashes."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from kind.command import run
from kind.errors import KindError

# What the base images hold.
PYTHON_VERSION = "3.11"
# Raised when install_packages leaves out something else: part of an image's key.
INSTALLED_FORM = "1"
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")
_INSTALL_SECONDS = 600.0


def required_by(package: str) -> Sequence[str]:
    """What an installed package requires, as its metadata words it; nothing if it is absent here,
    which is so for what only other platforms need.
    """
    try:
        return requires(package) or ()
    except PackageNotFoundError:
        return ()


def install_command(requirements: Path, target: Path, architecture: str) -> list[str]:
    """pip's command line: the image's platform, whatever the host is; wheels only, hashes all."""
    machine = _MACHINES.get(architecture)
    if machine is None:
        raise KindError(f"no Python packages are chosen for {architecture}: use {set(_MACHINES)}")
    return [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--require-hashes", "--no-deps", "--only-binary=:all:", "--no-compile"),
        *("--implementation=cp", f"--python-version={PYTHON_VERSION}"),
        *(f"--platform={platform}_{machine}" for platform in _PLATFORMS),
        *(f"--target={target}", f"--requirement={requirements}"),
    ]


def install_packages(
    requirements: Path, target: Path, architecture: str, environment: Mapping[str, str]
) -> None:
    """Fills `target`. Raises KindError with pip's last lines."""
    run(install_command(requirements, target, architecture), environment, _INSTALL_SECONDS)
    for folder in list(target.rglob("tests")):
        shutil.rmtree(folder, ignore_errors=True)  # numpy's alone are 17 MB
