"""The Go compiler of this machine, and the environment for reproducible builds."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from controlplane.errors import BinaryError
from controlplane.pins import GO_RELEASE_NEEDED
from controlplane.platforms import Platform

_ENV_SECONDS = 60.0
_NEEDED = ".".join(str(part) for part in GO_RELEASE_NEEDED)
_HINT = (
    f"install Go {_NEEDED} or later and put it on PATH, or set BIGFLEET_BINARIES to a directory "
    "that holds these binaries"
)


@dataclass(frozen=True)
class Compiler:
    """A usable Go compiler, its cache directories and its environment."""

    path: str
    build_cache: Path
    module_cache: Path
    scratch: Path
    environment: Mapping[str, str]


def build_environment(inherited: Mapping[str, str], platform: Platform) -> dict[str, str]:
    """The user's environment without settings that would change a pinned build."""
    return {
        **inherited,
        "CGO_ENABLED": "0",
        "GOARCH": platform.architecture,
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOOS": platform.operating_system,
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def find_compiler(inherited: Mapping[str, str], platform: Platform, purpose: str) -> Compiler:
    """The `go` on the inherited PATH. Raises BinaryError if it is missing or too old."""
    path = shutil.which("go", path=inherited.get("PATH", ""))
    if path is None:
        raise BinaryError(f"{purpose} needs the Go compiler, which is not on PATH: {_HINT}")
    environment = build_environment(inherited, platform)
    settings = _settings(path, environment)
    _require_release(settings.get("GOVERSION", ""), path)
    return Compiler(
        path=path,
        build_cache=Path(settings["GOCACHE"]),
        module_cache=Path(settings["GOMODCACHE"]),
        scratch=Path(settings["GOTMPDIR"] or inherited.get("TMPDIR") or "/tmp"),
        environment=environment,
    )


def _settings(path: str, environment: Mapping[str, str]) -> dict[str, str]:
    command = [path, "env", "-json", "GOVERSION", "GOCACHE", "GOMODCACHE", "GOTMPDIR"]
    try:
        answer = subprocess.run(
            command,
            cwd="/",
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=_ENV_SECONDS,
            check=True,
        )
        settings: dict[str, str] = json.loads(answer.stdout)
    except subprocess.CalledProcessError as error:
        raise BinaryError(f"`{' '.join(command)}` failed: {error.stderr.strip()}") from error
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise BinaryError(f"`{' '.join(command)}` failed: {error}") from error
    return settings


def _require_release(version: str, path: str) -> None:
    match = re.search(r"go(\d+)\.(\d+)", version)
    if match is None or (int(match[1]), int(match[2])) < GO_RELEASE_NEEDED:
        found = version or "an unknown version"
        raise BinaryError(f"{path} is {found}, want Go {_NEEDED} or later: {_HINT}")
