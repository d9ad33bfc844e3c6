"""kind's cluster configuration: a base under clusters/, with an image's patches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from kind.nodeimage.components import etcd_tag
from kind.nodeimage.node import POD_SUBNET, SERVICE_SUBNET, NodeImage

CLUSTERS_DIRECTORY = Path(__file__).parent / "clusters"
ONE_NODE = CLUSTERS_DIRECTORY / "one-node.yaml"
SEVERAL_NODES = CLUSTERS_DIRECTORY / "several-nodes.yaml"


def cluster_config(node_image: NodeImage, base: Path = ONE_NODE) -> str:
    """The config's YAML: the base, with patches for kubeadm where the image needs them."""
    config: dict[str, Any] = yaml.safe_load(base.read_text(encoding="utf-8"))
    if node_image.air_gapped:
        config["networking"] = {
            "disableDefaultCNI": True,  # kind's own plugin is an image; ours needs none
            "podSubnet": POD_SUBNET,
            "serviceSubnet": SERVICE_SUBNET,
        }
        config["kubeadmConfigPatches"] = _air_gapped_patches(node_image.versions)
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
