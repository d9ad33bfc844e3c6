"""What a cluster holds before anything of BigFleet runs in it: pure, as manifests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loaddriver.substrates.applying import Manifest
from loaddriver.substrates.components import KWOK_STAGES, ControlPlaneConfig, kwok_flags
from loaddriver.substrates.kind.layout import HARNESS_NAMESPACE, ROLE_NAMESPACE, Layout
from loaddriver.substrates.kind.manifests import FileMount, Workload

# Claims on the folders that the node shares with this machine.
STATE_CLAIM, LOGS_CLAIM = "bigfleet-state", "bigfleet-logs"
CONTROL_PLANE_TAINT = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}

_RESTRICTED = {
    "pod-security.kubernetes.io/enforce": "restricted",
    "pod-security.kubernetes.io/warn": "restricted",
}
_KWOK, _KWOK_ACCESS, _KWOK_STAGES = "kwok", "kwok-access", "kwok-stages"
_ACCESS_FOLDER, _STAGES_FOLDER = Path("/access"), Path("/stages")


def namespaces() -> Iterator[Manifest]:
    """Both with the strictest level of Pod Security."""
    for name in (ROLE_NAMESPACE, HARNESS_NAMESPACE):
        metadata = {"name": name, "labels": _RESTRICTED}
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def volumes(layout: Layout) -> Iterator[Manifest]:
    """What roles keep, and what they write for the harness: folders of this machine."""
    for claim, folder in ((STATE_CLAIM, layout.volumes), (LOGS_CLAIM, layout.logs)):
        owner = {"namespace": ROLE_NAMESPACE, "name": claim}
        common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": claim},
            "spec": {
                **common,
                "capacity": {"storage": "1Gi"},
                "claimRef": owner,
                "hostPath": {"path": str(layout.in_node(folder)), "type": "Directory"},
                "persistentVolumeReclaimPolicy": "Retain",
            },
        }
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": owner,
            "spec": {
                **common,
                "volumeName": claim,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }


def kwok_files(kubeconfig: str) -> Iterator[Manifest]:
    """What kwok reads: its access, and the stages that it plays."""
    yield secret(HARNESS_NAMESPACE, _KWOK_ACCESS, {"kubeconfig": kubeconfig})
    yield {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _KWOK_STAGES, "namespace": HARNESS_NAMESPACE},
        "data": {KWOK_STAGES.name: KWOK_STAGES.read_text()},
    }


def kwok(layout: Layout, image: str, settings: ControlPlaneConfig) -> Workload:
    """kwok as it runs locally; it serves nothing that could be probed."""
    return Workload(
        name=_KWOK,
        component=f"{layout.cluster}/{_KWOK}",
        image=image,
        arguments=kwok_flags(_ACCESS_FOLDER / "kubeconfig", _STAGES_FOLDER / KWOK_STAGES.name),
        environment={"GOGC": str(settings.gc_percent), "HOME": "/tmp"},
        namespace=HARNESS_NAMESPACE,
        mounts=(
            FileMount(str(_ACCESS_FOLDER), secret=_KWOK_ACCESS),
            FileMount(str(_STAGES_FOLDER), config_map=_KWOK_STAGES),
        ),
    )


def secret(namespace: str, name: str, texts: Mapping[str, str]) -> Manifest:
    """A Secret whose keys become files."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": dict(texts),
    }


def away_from_fake_nodes() -> dict[str, Any]:
    """A merge patch for a DaemonSet: kwok would only pretend to run its pods.

    The pods that run are what they should be, and are not replaced.
    """
    real = {"matchExpressions": [{"key": CONTROL_PLANE_TAINT["key"], "operator": "Exists"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [real]}}
    return {
        "spec": {
            "updateStrategy": {"type": "OnDelete", "rollingUpdate": None},
            "template": {"spec": {"affinity": {"nodeAffinity": required}}},
        }
    }
