"""Parts of a run that are not the harness's own: a checkout, components, a configuration."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from controlplane.locate import query_version, require_compatible
from controlplane.pins import COMPONENTS, wanted_modules
from controlplane.request import Binaries
from loaddriver.errors import ProfileError

BIGFLEET = "bigfleet"
_KIND = "KubeSchedulerConfiguration"
_IMPORT_TIMEOUT_SECONDS = 120
# Without the working directory on its path, where the harness's own BigFleet may be.
_SAFE_PATH = "-P"
_WHERE = "import pathlib, bigfleet; print(pathlib.Path(bigfleet.__file__).resolve().parents[1])"


@dataclass(frozen=True)
class SystemUnderTest:
    """A checkout with an environment of its own."""

    root: Path

    @property
    def python(self) -> tuple[str, ...]:
        """The command line of its interpreter."""
        return (str(self.root / ".venv" / "bin" / "python"), _SAFE_PATH)

    @property
    def command(self) -> tuple[str, ...]:
        """The command line of its `bigfleet`."""
        return (*self.python, "-m", "bigfleet")


def system_at(root: Path, environment: Mapping[str, str]) -> SystemUnderTest:
    """The system in the checkout `root`. Raises ProfileError if its environment is not its own."""
    found = SystemUnderTest(root.resolve())
    try:
        said = subprocess.run(
            [*found.python, "-c", _WHERE],
            check=False,
            capture_output=True,
            text=True,
            timeout=_IMPORT_TIMEOUT_SECONDS,
            env=dict(environment),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProfileError(
            [f"{root}: its .venv cannot be used: {error}; run `make setup` there"]
        ) from None
    if said.returncode:
        reason = (said.stderr.strip().splitlines() or ["no output"])[-1]
        raise ProfileError(
            [f"{root}: BigFleet cannot be imported there: {reason}; run `make setup`"]
        )
    if Path(said.stdout.strip()) != found.root:
        raise ProfileError(
            [f"{root}: its .venv has the BigFleet of {said.stdout.strip()}; run `make setup` there"]
        )
    return found


def component_at(text: str) -> tuple[str, Path]:
    """A component's name and its program, of `NAME=PATH`. Raises ProfileError."""
    name, _, path = text.partition("=")
    if name not in (*COMPONENTS, BIGFLEET):
        known = ", ".join((*COMPONENTS, BIGFLEET))
        raise ProfileError([f"--component {text}: expected NAME=PATH of {known}"])
    binary = Path(path).absolute()
    if not (binary.is_file() and os.access(binary, os.X_OK)):
        raise ProfileError([f"--component {text}: {binary} is no program"])
    return name, binary


def with_components(binaries: Binaries, components: Mapping[str, Path]) -> Binaries:
    """The control plane with these components in place of its own. Raises BinaryError for one that
    does not run, or BinaryUsageError if it does not fit the others' versions.
    """
    commands = {
        name: module.version_command(name)
        for module in wanted_modules(None)
        for name in module.components
    }
    versions = {name: query_version(path, commands[name]) for name, path in components.items()}
    merged = {**binaries.versions, **versions}
    kubernetes = [name for name in COMPONENTS if name.startswith("kube-")]
    require_compatible([(name, merged[name]) for name in kubernetes])
    return replace(
        binaries,
        versions=merged,
        origin={**binaries.origin, **{name: f"given: {at}" for name, at in components.items()}},
        **{name.replace("-", "_"): path for name, path in components.items()},
    )


def scheduler_config_at(path: Path) -> Path:
    """The path, if it is a configuration of kube-scheduler. Raises ProfileError."""
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ProfileError([f"{path}: {error}"]) from None
    if not isinstance(content, dict) or content.get("kind") != _KIND:
        raise ProfileError(
            [f"{path}: not a configuration of kube-scheduler: expected kind: {_KIND}"]
        )
    if not isinstance(content.get("clientConnection", {}), dict):
        raise ProfileError([f"{path}: clientConnection: expected a mapping, such as qps: 50"])
    return path.resolve()
