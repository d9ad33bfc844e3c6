"""Verification of a new control plane, and the objects needed for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from bigfleet.kube.client import CONNECTION_ERRORS, ApiError, KubeClient
from bigfleet.kube.types import Conditioned
from loaddriver.substrates.applying import apply
from loaddriver.substrates.components import FAKE_NODE_ANNOTATION, NO_NETWORK

_HARNESS_RBAC = Path(__file__).with_name("manifests") / "harness-rbac.yaml"
_NODE = "substrate-check"


class _NodeSpec(msgspec.Struct):
    taints: list[Any] = []


class _Node(Conditioned, kw_only=True):
    spec: _NodeSpec


async def answers(client: KubeClient, path: str) -> bool:
    """Whether a GET of this path succeeds."""
    try:
        await client.get(path)
    except (ApiError, *CONNECTION_ERRORS):
        return False
    return True


async def grant_harness_roles(client: KubeClient) -> None:
    """Grant RBAC to the harness's identities; `client` is a cluster administrator."""
    await apply(client, yaml.load_all(_HARNESS_RBAC.read_text(), yaml.CSafeLoader))


async def add_check_node(client: KubeClient) -> None:
    """Create a temporary Node for kwok to simulate."""
    key, value = FAKE_NODE_ANNOTATION
    metadata = {
        "name": _NODE,
        "labels": {"kubernetes.io/hostname": _NODE},
        "annotations": {key: value},
    }
    status = {"conditions": [{"type": NO_NETWORK, "status": "False"}]}
    await client.create("/api/v1/nodes", {"kind": "Node", "metadata": metadata, "status": status})


async def check_node_is_usable(client: KubeClient) -> bool:
    """Whether the Node is Ready and the node controller has removed its not-ready taint."""
    node = msgspec.json.decode(await client.get(f"/api/v1/nodes/{_NODE}"), type=_Node)
    return node.is_true("Ready") and not node.spec.taints


async def remove_check_node(client: KubeClient) -> None:
    """Delete the temporary Node."""
    await client.delete(f"/api/v1/nodes/{_NODE}")
