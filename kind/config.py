"""kind's cluster configuration: a base under clusters/, with an image's patches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kind.nodeimage.components import etcd_tag
from kind.nodeimage.node import POD_SUBNET, SERVICE_SUBNET, NodeImage

CLUSTERS_DIRECTORY = Path(__file__).parent / "clusters"
ONE_NODE = CLUSTERS_DIRECTORY / "one-node.yaml"
SEVERAL_NODES = CLUSTERS_DIRECTORY / "several-nodes.yaml"


@dataclass(frozen=True)
class Mount:
    """A host path mounted into the control-plane node."""

    host_path: Path
    container_path: str
    read_only: bool = True


def cluster_config(
    node_image: NodeImage,
    base: Path = ONE_NODE,
    *,
    patches: Sequence[str] = (),
    mounts: Sequence[Mount] = (),
) -> str:
    """The config's YAML: the base, with patches for kubeadm (YAML each) and mounts added."""
    config: dict[str, Any] = yaml.safe_load(base.read_text(encoding="utf-8"))
    if node_image.air_gapped:
        config["networking"] = {
            "disableDefaultCNI": True,  # kind's own plugin is an image; ours needs none
            "podSubnet": POD_SUBNET,
            "serviceSubnet": SERVICE_SUBNET,
        }
        patches = [*_air_gapped_patches(node_image.versions), *patches]
    if patches:
        config["kubeadmConfigPatches"] = list(patches)
    if mounts:
        _control_plane(config)["extraMounts"] = [_mount(mount) for mount in mounts]
    return yaml.safe_dump(config, sort_keys=False)


def _air_gapped_patches(versions: Mapping[str, str]) -> list[str]:
    """Patches for the images of an air-gapped node, and to allow cgroup v1 for kubelet."""
    images = {
        "kind": "ClusterConfiguration",
        "etcd": {"local": {"imageTag": etcd_tag(versions["etcd"])}},
        "dns": {"imageTag": f"v{versions['coredns']}"},
    }
    kubelet = {"kind": "KubeletConfiguration", "failCgroupV1": False}
    return [yaml.safe_dump(patch, sort_keys=False) for patch in (images, kubelet)]


def _control_plane(config: dict[str, Any]) -> dict[str, Any]:
    node: dict[str, Any] = next(n for n in config["nodes"] if n["role"] == "control-plane")
    return node


def _mount(mount: Mount) -> dict[str, object]:
    return {
        # kind runs in another directory, so paths must be absolute.
        "hostPath": str(mount.host_path.absolute()),
        "containerPath": mount.container_path,
        "readOnly": mount.read_only,
    }
