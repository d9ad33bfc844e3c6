"""Provides binaries: given, cached, downloaded or built, in that order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from controlplane.build import build
from controlplane.cache import (
    cached_path,
    disk_errors_as_binary_errors,
    install,
    module_lock,
    staging_directory,
)
from controlplane.errors import BinaryError
from controlplane.locate import LocatedBinary, cached, locate, query_version, require_compatible
from controlplane.pins import (
    HELM,
    KARPENTER,
    METRICS_SERVER,
    OPTIONAL_MODULES,
    Module,
    wanted_modules,
)
from controlplane.releases import Releases
from controlplane.request import Binaries, BinaryRequest


def resolve(
    request: BinaryRequest, progress: Callable[[str], None], optional: Sequence[str] = ()
) -> Binaries:
    """A control plane's five binaries and the named optional ones.

    Blocks and raises as `obtain` does; also raises BinaryUsageError for a version skew.
    """
    modules = wanted_modules(request.kubernetes_version)
    found = obtain([*modules, *(OPTIONAL_MODULES[name] for name in optional)], request, progress)
    require_compatible([(name, found[name].version) for name in modules[0].components])
    return binaries_of(found)


def obtain(
    modules: Sequence[Module], request: BinaryRequest, progress: Callable[[str], None]
) -> dict[str, LocatedBinary]:
    """Every component of the modules, by name; missing ones are downloaded or built.

    A build blocks for minutes; progress gets a line at least every
    request.progress_interval_seconds. Raises BinaryUsageError for an invalid request (exit code
    2) and BinaryError if this machine cannot provide a binary (exit code 6).
    """
    found = locate(request, progress, modules)
    releases = Releases(request, progress)
    for module in modules:
        missing = tuple(name for name in module.components if name not in found)
        if missing:
            with disk_errors_as_binary_errors(request.directory):
                found.update(_obtain(module, missing, request, releases, progress))
    return found


def _obtain(
    module: Module,
    missing: tuple[str, ...],
    request: BinaryRequest,
    releases: Releases,
    progress: Callable[[str], None],
) -> dict[str, LocatedBinary]:
    root = request.directory
    root.mkdir(parents=True, exist_ok=True)
    with module_lock(root, module, progress, request.progress_interval_seconds):
        # Another process may have installed them in the meantime.
        found = {name: here for name in missing if (here := cached(module, name, request))}
        with staging_directory(root, module) as staging:
            wanted = tuple(name for name in missing if name not in found)
            for name, (staged, origin) in _staged(
                module, wanted, request, releases, staging, progress
            ).items():
                found[name] = _installed(module, name, staged, origin, request)
                progress(f"installed {found[name].path} ({origin})")
    return found


def _staged(
    module: Module,
    wanted: tuple[str, ...],
    request: BinaryRequest,
    releases: Releases,
    staging: Path,
    progress: Callable[[str], None],
) -> dict[str, tuple[Path, str]]:
    """(file, origin) of each wanted component, in the staging directory."""
    staged = {
        name: fetched
        for name in wanted
        if (fetched := releases.fetch(module, name, staging)) is not None
    }
    rest = tuple(name for name in wanted if name not in staged)
    if rest:
        built = build(module, rest, request, staging, progress)
        origin = f"built from {'changed ' if module.changed else ''}source"
        staged |= {name: (path, origin) for name, path in built.items()}
    return staged


def _installed(
    module: Module, component: str, staged: Path, origin: str, request: BinaryRequest
) -> LocatedBinary:
    """Verify the version of a staged binary and move it to the cache."""
    staged.chmod(0o755)
    version = query_version(staged, module.version_command(component))
    if version != module.version:
        raise BinaryError(
            f"{component} ({origin}) reports version {version}, want {module.version}: "
            "nothing was installed"
        )
    target = cached_path(request.directory, module, component, request.platform)
    install(staged, target)
    return LocatedBinary(target, version, origin)


def binaries_of(found: Mapping[str, LocatedBinary]) -> Binaries:
    """A control plane's binaries, all of which were found, and what was found of the optional."""
    return Binaries(
        kube_apiserver=found["kube-apiserver"].path,
        kube_controller_manager=found["kube-controller-manager"].path,
        kube_scheduler=found["kube-scheduler"].path,
        etcd=found["etcd"].path,
        kwok=found["kwok"].path,
        versions={name: here.version for name, here in found.items()},
        origin={name: here.origin for name, here in found.items()},
        metrics_server=_optional(found, METRICS_SERVER),
        karpenter=_optional(found, KARPENTER),
        helm=_optional(found, HELM),
    )


def _optional(found: Mapping[str, LocatedBinary], component: str) -> Path | None:
    here = found.get(component)
    return here.path if here is not None else None
