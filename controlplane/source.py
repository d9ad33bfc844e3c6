"""The Go module that a build runs in: one of the repository's, or one made for another release.

A module made for another release states only that release and its staging modules; everything
else is chosen by Go from what that release itself requires, so that it is built as it was shipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from controlplane.errors import BinaryError
from controlplane.pins import Module

_STAGED = re.compile(r"^\s*(k8s\.io/\S+) => \./staging/src/\1$", re.MULTILINE)
_GO_LINE = re.compile(r"^go (\d+\.\d+(?:\.\d+)?)$", re.MULTILINE)


def staging_modules(kubernetes_go_mod: str) -> tuple[str, ...]:
    """The modules that a Kubernetes release develops in its own tree, from its go.mod.

    They differ between releases. Raises BinaryError where none is found.
    """
    modules = tuple(_STAGED.findall(kubernetes_go_mod))
    if not modules:
        raise BinaryError(
            "this Kubernetes release's go.mod replaces no module by ./staging/src/...: "
            "it cannot be built here; give a directory that has its binaries"
        )
    return modules


def go_release_of(go_mod: str) -> str:
    """The Go release that a go.mod asks for."""
    match = _GO_LINE.search(go_mod)
    if match is None:
        raise BinaryError("this Kubernetes release's go.mod has no go line: it cannot be built")
    return match[1]


def staging_version(kubernetes_version: str) -> str:
    """Staging modules of Kubernetes 1.X.Y are published as v0.X.Y."""
    return "v0." + kubernetes_version.removeprefix("1.")


def generated_go_mod(module: Module, go_release: str, staging: Iterable[str]) -> str:
    """A go.mod that builds module's components at its version, before `go mod tidy`."""
    version = staging_version(module.version)
    tools = "\n".join(f"\t{package}" for package in module.packages.values())
    replaced = "\n".join(f"\t{name} => {name} {version}" for name in staging)
    return (
        f"module bigfleet/controlplane/{module.name}\n\n"
        f"go {go_release}\n\n"
        f"tool (\n{tools}\n)\n\n"
        f"require k8s.io/kubernetes v{module.version}\n\n"
        f"replace (\n{replaced}\n)\n"
    )
