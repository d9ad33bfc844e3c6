"""Locates binaries on this machine: in a given directory or in the cache."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.cache import cached_path
from controlplane.errors import BinaryError, BinaryUsageError
from controlplane.pins import Module, wanted_modules
from controlplane.request import BinaryRequest

_VERSION_SECONDS = 30.0
_VERSION_PATTERN = re.compile(r"\bv?(\d+\.\d+\.\d+[^\s,]*)")


@dataclass(frozen=True)
class LocatedBinary:
    """The path of a binary, its version, and a phrase for its origin."""

    path: Path
    version: str
    origin: str


def parse_version(output: str) -> str | None:
    """The first version number in the output of a binary's version command."""
    match = _VERSION_PATTERN.search(output)
    return match[1] if match else None


def query_version(path: Path, arguments: Sequence[str] = ("--version",)) -> str:
    """The version that a binary prints. Raises BinaryError if it prints none or does not run."""
    command = [str(path), *arguments]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_VERSION_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BinaryError(f"`{' '.join(command)}` does not run on this machine: {error}") from error
    version = parse_version(answer.stdout)
    if version is None:
        raise BinaryError(f"`{' '.join(command)}` prints no version: is it the right binary?")
    return version


def locate(
    request: BinaryRequest,
    progress: Callable[[str], None],
    modules: Sequence[Module] | None = None,
) -> dict[str, LocatedBinary]:
    """The wanted binaries on this machine, by component; modules None: a control plane's.

    Raises BinaryUsageError for a given path that is not a directory or an invalid version,
    BinaryError for a given binary that does not run.
    """
    if modules is None:
        modules = wanted_modules(request.kubernetes_version)
    for directory in request.given_directories:
        _require_useful(directory, modules, progress)
    found: dict[str, LocatedBinary] = {}
    for module in modules:
        for component in module.components:
            here = _given(module, component, request, progress) or cached(
                module, component, request
            )
            if here is not None:
                found[component] = here
    return found


def _require_useful(
    directory: Path, modules: Sequence[Module], progress: Callable[[str], None]
) -> None:
    if not directory.is_dir():
        raise BinaryUsageError(
            f"{directory} is not a directory: correct --binaries, BIGFLEET_BINARIES or "
            "KUBEBUILDER_ASSETS, or unset it"
        )
    names = [name for module in modules for name in module.components]
    if not any(_is_binary(directory / name) for name in names):
        progress(f"{directory} holds none of {', '.join(names)}")


def _given(
    module: Module, component: str, request: BinaryRequest, progress: Callable[[str], None]
) -> LocatedBinary | None:
    for directory in request.given_directories:
        path = directory / component
        if not _is_binary(path):
            continue
        version = query_version(path, module.version_command(component))
        if version == module.version:
            return LocatedBinary(path, version, f"given in {directory}")
        asked = module.name == "kubernetes" and request.kubernetes_version is not None
        if asked or request.exact_versions:
            progress(f"ignoring {path}: version {version}, want {module.version}")
            continue
        progress(f"using {path}: version {version}, pinned is {module.version}")
        return LocatedBinary(path, version, f"given in {directory}")
    return None


def _is_binary(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def cached(module: Module, component: str, request: BinaryRequest) -> LocatedBinary | None:
    """A component in the cache; its version was verified when it was installed."""
    path = cached_path(request.directory, module, component, request.platform)
    return LocatedBinary(path, module.version, "cache") if _is_binary(path) else None


def require_compatible(versions: Sequence[tuple[str, str]]) -> None:
    """Raise BinaryUsageError if the components violate Kubernetes' version skew policy.

    versions are (component, version), kube-apiserver's first. The others may be one minor release
    older, never newer.
    """
    (server, server_version), *others = versions
    for component, version in others:
        lag = _minor(server_version) - _minor(version)
        if lag not in (0, 1):
            raise BinaryUsageError(
                f"{component} {version} does not work with {server} {server_version}: it may be "
                f"one minor release older, never newer. Set KUBERNETES_VERSION={server_version}, "
                "or give a directory with all of them from one release"
            )


def _minor(version: str) -> int:
    return int(version.split(".")[1])
