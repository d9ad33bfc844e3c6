"""The request for binaries, and its result."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.checksums import pinned_checksums
from controlplane.errors import BinaryUsageError
from controlplane.pins import (
    COMPONENTS,
    HELM,
    KARPENTER,
    METRICS_SERVER,
    RELEASE_BASE_URLS,
)
from controlplane.platforms import Platform, platform_named


@dataclass(frozen=True)
class BinaryRequest:
    """The sources of binaries.

    given_directories are searched first, in order. cache_directory is BigFleet's whole cache;
    binaries use its subdirectory controlplane/. The Go compiler inherits environment.
    kubernetes_version None means the pinned one. checksums maps a released file's name to its
    pinned SHA-256, which takes precedence over the published one. release_base_urls is keyed by
    module name. from_source disables downloads of releases. exact_versions ignores given binaries
    of other versions than the wanted ones.
    """

    cache_directory: Path
    environment: Mapping[str, str]
    platform: Platform
    given_directories: tuple[Path, ...] = ()
    kubernetes_version: str | None = None
    exact_versions: bool = False
    from_source: bool = False
    checksums: Mapping[str, str] = field(default_factory=dict)
    release_base_urls: Mapping[str, str] = field(default_factory=lambda: RELEASE_BASE_URLS)
    progress_interval_seconds: float = 15.0

    @property
    def directory(self) -> Path:
        return self.cache_directory / "controlplane"


@dataclass(frozen=True)
class Binaries:
    """A complete control plane, and the optional components that were requested (else None).

    versions and origin are keyed by component name. An origin is a phrase for people: "given in
    DIR", "cache", "downloaded, pinned checksum", "downloaded, checksum published by HOST" or
    "built from source".
    """

    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    etcd: Path
    kwok: Path
    versions: dict[str, str]
    origin: dict[str, str]
    metrics_server: Path | None = None
    karpenter: Path | None = None
    helm: Path | None = None

    @property
    def paths(self) -> dict[str, Path]:
        """Paths by component name, in the order of COMPONENTS; then the optional ones."""
        paths = (
            self.kube_apiserver,
            self.kube_controller_manager,
            self.kube_scheduler,
            self.etcd,
            self.kwok,
        )
        optional = {
            METRICS_SERVER: self.metrics_server,
            KARPENTER: self.karpenter,
            HELM: self.helm,
        }
        found = {name: path for name, path in optional.items() if path is not None}
        return {**dict(zip(COMPONENTS, paths, strict=True)), **found}


def default_cache_directory(environment: Mapping[str, str]) -> Path:
    """The user's cache directory by the XDG rules: a relative XDG_CACHE_HOME is ignored."""
    configured = Path(environment.get("XDG_CACHE_HOME", ""))
    if configured.is_absolute():
        return configured / "bigfleet"
    if "HOME" not in environment:
        raise BinaryUsageError(
            "neither HOME nor XDG_CACHE_HOME is set: set one, or give --cache DIR"
        )
    return Path(environment["HOME"]) / ".cache" / "bigfleet"


def request_from(
    environment: Mapping[str, str],
    *,
    binaries: str | None = None,
    cache: str | None = None,
    kubernetes_version: str | None = None,
    from_source: bool = False,
) -> BinaryRequest:
    """The request of a command line and its environment; flags take precedence.

    Reads BIGFLEET_BINARIES, KUBEBUILDER_ASSETS, KUBERNETES_VERSION, XDG_CACHE_HOME and HOME.
    Raises BinaryUsageError for an invalid value, BinaryError on an unsupported platform.
    """
    first = binaries or environment.get("BIGFLEET_BINARIES")
    given = (first, environment.get("KUBEBUILDER_ASSETS"))
    return BinaryRequest(
        cache_directory=Path(cache).absolute() if cache else default_cache_directory(environment),
        environment=environment,
        platform=platform_named(platform.system(), platform.machine()),
        given_directories=tuple(Path(directory).absolute() for directory in given if directory),
        kubernetes_version=kubernetes_version or environment.get("KUBERNETES_VERSION") or None,
        from_source=from_source,
        checksums=pinned_checksums(),
    )
