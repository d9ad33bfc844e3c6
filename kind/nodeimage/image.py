"""The node image: kind's own if it can be pulled, else one that is built here."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from controlplane.cache import file_lock
from controlplane.module_files import module_files
from controlplane.pins import (
    KIND_MODULE,
    wanted_modules,
    wanted_node_modules,
)
from controlplane.request import BinaryRequest
from controlplane.resolve import obtain
from kind.content_key import content_key
from kind.engine import Engine
from kind.nodeimage.components import references, write_components
from kind.nodeimage.kind_files import copy_kind_files, render_templates
from kind.nodeimage.node import POD_SUBNET, SERVICE_SUBNET, NodeImage
from kind.rootfs import Base, resolve_base

# The default of the pinned kind release, stated so that it can be pulled beforehand. It is another
# Kubernetes release than the pinned one of local runs: request a version to measure the same one.
KIND_NODE_IMAGE = (
    "docker.io/kindest/node:v1.37.0"
    "@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5"
)
NODE_BASE = Base(
    "bigfleet-node-base",
    (
        "bash", "ca-certificates", "conntrack", "containerd", "containernetworking-plugins",
        "curl", "ethtool", "iproute2", "iptables", "jq", "kmod", "libseccomp2", "mount",
        "nftables", "procps", "runc", "socat", "systemd", "systemd-sysv", "util-linux",
    ),
)  # fmt: skip

_HERE = Path(__file__).parent
_BUILD_SECONDS = 600.0
_ON_NODES = ("kubeadm", "kubectl", "kubelet")


def resolve_node_image(
    request: BinaryRequest, engine: Engine, progress: Callable[[str], None]
) -> NodeImage:
    """The image built here if the engine has it, else kind's own if it can be pulled, else one
    that is built now. An image of a requested Kubernetes version is always built.

    Raises KindError or controlplane's errors if a prerequisite is missing.
    """
    made = local_node_image(request)
    if engine.has_image(made.reference):
        return made
    if request.kubernetes_version is None and engine.can_pull(KIND_NODE_IMAGE, progress):
        return NodeImage(KIND_NODE_IMAGE, air_gapped=False, versions={})
    return make_node_image(request, engine, progress)


def local_node_image(request: BinaryRequest) -> NodeImage:
    """The identity of the image to build here; it may not exist yet."""
    modules = (
        *wanted_modules(request.kubernetes_version),
        *wanted_node_modules(request.kubernetes_version),
    )
    versions = {name: module.version for module in modules for name in module.components}
    pins = [f"{name} {version}" for name, version in sorted(versions.items())]
    key = content_key(NODE_BASE.reference, KIND_MODULE.version, *pins, _HERE)
    reference = f"localhost/bigfleet-kind-node:v{versions['kubelet']}-{key}"
    return NodeImage(reference, air_gapped=True, versions=versions)


def make_node_image(
    request: BinaryRequest, engine: Engine, progress: Callable[[str], None]
) -> NodeImage:
    """Build the air-gapped image from pinned Go modules and Debian packages, if it is missing.

    Building binaries blocks for minutes. Raises as resolve_node_image does.
    """
    image = local_node_image(request)
    work = request.cache_directory / "kind"
    work.mkdir(parents=True, exist_ok=True)
    interval_seconds = request.progress_interval_seconds
    with file_lock(work / "node-image.lock", "building a node image", progress, interval_seconds):
        if not engine.has_image(image.reference):
            _make(image, request, engine, work, progress)
    return image


def _make(
    image: NodeImage,
    request: BinaryRequest,
    engine: Engine,
    work: Path,
    progress: Callable[[str], None],
) -> None:
    binaries = _binaries(request, progress)
    base = resolve_base(NODE_BASE, engine, work, progress)
    progress(f"building {image.reference} (about a minute)")
    with tempfile.TemporaryDirectory(prefix=".node-image-", dir=work) as scratch:
        context = Path(scratch)
        _gather(context, image, binaries, base, engine, request)
        engine.run(
            *("build", "--network=none", f"--file={_HERE / 'Containerfile'}"),
            *(f"--build-arg=BASE={base}", f"--tag={image.reference}", str(context)),
            timeout_seconds=_BUILD_SECONDS,
        )


def _binaries(request: BinaryRequest, progress: Callable[[str], None]) -> dict[str, Path]:
    """All binaries by name, in exactly the pinned versions."""
    version = request.kubernetes_version
    modules = (*wanted_modules(version), *wanted_node_modules(version))
    found = obtain(modules, replace(request, exact_versions=True), progress)
    return {name: here.path for name, here in found.items()}


def _gather(
    context: Path,
    image: NodeImage,
    binaries: Mapping[str, Path],
    base: str,
    engine: Engine,
    request: BinaryRequest,
) -> None:
    """Gather the inputs of the Containerfile."""
    contract = module_files(KIND_MODULE, "sigs.k8s.io/kind", request)
    copy_kind_files(contract, context / "contract")
    names = references(image.versions)
    values = {
        "@PAUSE_IMAGE@": names["pause"],
        "@POD_SUBNET@": POD_SUBNET,
        "@SERVICE_SUBNET@": SERVICE_SUBNET,
    }
    render_templates(_HERE / "files", context / "files", values)
    (context / "files" / "kind" / "version").write_text(f"v{image.versions['kubelet']}")
    for folder in ("bin", "images"):
        (context / folder).mkdir()
    for name in _ON_NODES:
        shutil.copy(binaries[name], context / "bin" / name)
    write_components(
        context / "images",
        binaries,
        image.versions,
        base,
        engine,
        request.platform.architecture,
    )
