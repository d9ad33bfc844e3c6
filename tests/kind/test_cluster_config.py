from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kind.cluster import pod_routes
from kind.config import ONE_NODE, SEVERAL_NODES, cluster_config
from kind.nodeimage.node import POD_SUBNET, SERVICE_SUBNET, NodeImage

KIND_NODE_IMAGE = NodeImage("kindest/node:v1", air_gapped=False, versions={})
MADE_HERE = NodeImage("localhost/node:1", True, {"etcd": "3.7.3", "coredns": "1.14.2"})


def config(image: NodeImage, base: Path = ONE_NODE) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(cluster_config(image, base))
    return loaded


def patches(loaded: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By the kind of object that each patches."""
    texts = [yaml.safe_load(text) for text in loaded.get("kubeadmConfigPatches", [])]
    return {patch["kind"]: patch for patch in texts}


def test_with_kinds_own_image_the_base_is_the_whole_config() -> None:
    assert config(KIND_NODE_IMAGE) == yaml.safe_load(ONE_NODE.read_text())


@pytest.mark.parametrize(("base", "nodes"), [(ONE_NODE, 1), (SEVERAL_NODES, 3)])
def test_each_base_has_one_control_plane(base: Path, nodes: int) -> None:
    roles = [node["role"] for node in config(KIND_NODE_IMAGE, base)["nodes"]]
    assert len(roles) == nodes
    assert roles.count("control-plane") == 1


def test_an_image_made_here_brings_its_own_network_and_names_its_own_components() -> None:
    loaded = config(MADE_HERE)
    assert loaded["networking"] == {
        "disableDefaultCNI": True,
        "podSubnet": POD_SUBNET,
        "serviceSubnet": SERVICE_SUBNET,
    }
    assert patches(loaded)["ClusterConfiguration"]["etcd"]["local"]["imageTag"] == "3.7.3-0"
    assert patches(loaded)["ClusterConfiguration"]["dns"]["imageTag"] == "v1.14.2"
    assert patches(loaded)["KubeletConfiguration"]["failCgroupV1"] is False


def node(name: str, address: str, pods: str) -> dict[str, Any]:
    addresses = [
        {"type": "Hostname", "address": name},
        {"type": "InternalIP", "address": address},
    ]
    return {
        "metadata": {"name": name},
        "spec": {"podCIDR": pods},
        "status": {"addresses": addresses},
    }


def test_every_node_learns_the_way_to_every_other_nodes_pods() -> None:
    nodes = [node("a", "10.0.0.1", "10.244.0.0/24"), node("b", "10.0.0.2", "10.244.1.0/24")]
    assert list(pod_routes(nodes)) == [
        ("a", ["route", "replace", "10.244.1.0/24", "via", "10.0.0.2"]),
        ("b", ["route", "replace", "10.244.0.0/24", "via", "10.0.0.1"]),
    ]


def test_a_single_node_needs_no_routes() -> None:
    assert list(pod_routes([node("a", "10.0.0.1", "10.244.0.0/24")])) == []
