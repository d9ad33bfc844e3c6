"""What kind and kubeadm are told, so that a cluster of theirs behaves as a local one does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from kind.config import Mount, cluster_config
from kind.nodeimage.node import NodeImage
from loaddriver.substrates.components import (
    CONTROLLERS,
    ControlPlaneConfig,
    api_server_flags,
    controller_manager_flags,
)
from loaddriver.substrates.kind.layout import NODE_PORTS, Layout
from loaddriver.substrates.ports import LOOPBACK

SCHEDULER_KUBECONFIG = Path("/etc/kubernetes/scheduler.conf")

# A cluster that runs pods of its own needs more than one whose pods are all played by kwok.
_REAL_PODS_CONTROLLERS = (
    "endpointslice-controller",
    "node-ipam-controller",
    "persistentvolume-binder-controller",
    "root-ca-certificate-publisher-controller",
)
# Every Node, kwok's too, gets its part of the pods' /16: a thousand Nodes with 60 addresses each.
_NODE_MASK_BITS = 26
# In memory: a node's /tmp is a tmpfs.
_ETCD_DIRECTORY = "/tmp/etcd"


def kind_config(node_image: NodeImage, layout: Layout, settings: ControlPlaneConfig) -> str:
    """The YAML of a one-node cluster whose node sees the layout's folders and ports."""
    mounts = [
        Mount(folder, str(layout.in_node(folder)), read_only)
        for folder, read_only in layout.mounts()
    ]
    patch = yaml.safe_dump(_cluster_configuration(layout, settings), sort_keys=False)
    config = yaml.safe_load(cluster_config(node_image, patches=[patch], mounts=mounts))
    [node] = config["nodes"]
    # Port -1: the container engine takes any that is free.
    node["extraPortMappings"] = [
        {"containerPort": port, "hostPort": -1, "listenAddress": LOOPBACK} for port in NODE_PORTS
    ]
    text: str = yaml.safe_dump(config, sort_keys=False)
    return text


def _cluster_configuration(layout: Layout, settings: ControlPlaneConfig) -> dict[str, Any]:
    collector = [{"name": "GOGC", "value": str(settings.gc_percent)}]
    token_file = layout.in_node(layout.credentials / "tokens.csv")
    policy, log = layout.in_node(layout.audit_policy), layout.in_node(layout.audit_log)
    controllers = (*CONTROLLERS, *_REAL_PODS_CONTROLLERS)
    scheduler = layout.in_node(layout.scheduler_configuration)
    return {
        "kind": "ClusterConfiguration",
        "apiServer": {
            "extraArgs": _arguments(api_server_flags(token_file, policy, log)),
            "extraEnvs": collector,
            "extraVolumes": [
                _volume("credentials", token_file.parent),
                _volume("config", policy.parent),
                _volume("audit", log.parent, read_only=False),
            ],
        },
        "controllerManager": {
            "extraArgs": [
                *_arguments(controller_manager_flags(controllers, settings)),
                {"name": "node-cidr-mask-size", "value": str(_NODE_MASK_BITS)},
            ],
            "extraEnvs": collector,
        },
        "scheduler": {
            "extraArgs": _arguments([f"--config={scheduler}", "--leader-elect=false"]),
            "extraEnvs": collector,
            "extraVolumes": [_volume("config", scheduler.parent)],
        },
        "etcd": {
            "local": {
                "dataDir": _ETCD_DIRECTORY,
                "extraArgs": _arguments(["--unsafe-no-fsync=true"]),
                "extraEnvs": collector,
            }
        },
    }


def _arguments(flags: Sequence[str]) -> list[dict[str, str]]:
    parts = (flag.removeprefix("--").partition("=") for flag in flags)
    return [{"name": name, "value": value} for name, _, value in parts]


def _volume(name: str, folder: Path, read_only: bool = True) -> dict[str, Any]:
    return {
        "name": f"bigfleet-{name}",
        "hostPath": str(folder),
        "mountPath": str(folder),
        "readOnly": read_only,
        "pathType": "Directory",
    }
