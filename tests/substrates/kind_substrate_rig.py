"""Roles, layouts and pod lists for tests of the kind substrate that need no engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bigfleet.api.auth.identity import Principal
from loaddriver.substrates.base import RoleSpec
from loaddriver.substrates.kind.layout import Layout
from loaddriver.substrates.kind.manifests import COMPONENT_ANNOTATION

NODE = "c1-smoke-1-control-plane"


def layout(root: Path, cluster: str = "c1") -> Layout:
    """Of one cluster, below an empty folder."""
    return Layout(cluster, f"{cluster}-smoke-1", root / "data" / cluster, root / "logs")


def shard() -> RoleSpec:
    """A role with every kind of placeholder."""
    return RoleSpec(
        "shard-0",
        [
            "shard",
            *("--listen", "{listen}", "--observe", "{observe}", "--provider", "{provider/listen}"),
            *("--state", "{state}", "--inventory", "{inventory}", "--journal", "{journal}"),
            *("--host-kubeconfigs", "{hosts}", "--identity", "{identity}"),
        ],
        ports=("listen", "observe"),
        observe_port="observe",
        inputs={"inventory": Path("/anywhere/inventory.jsonl")},
        kubeconfigs={"hosts": "fake-host"},
        outputs={"journal": "machines.jsonl"},
        peer_identity=Principal("shard", "shard-0"),
    )


def provider() -> RoleSpec:
    """Started before the shard, which dials it."""
    return RoleSpec("provider", ["provider", "{listen}"], ports=("listen",))


def operator(cluster: str = "c1") -> RoleSpec:
    """Uses its cluster's API and keeps nothing."""
    return RoleSpec(
        f"{cluster}/operator",
        ["operator", *("--shard", "{shard-0/listen}", "--machines", "{api-server}", "{observe}")],
        ports=("observe",),
        observe_port="observe",
        cluster=cluster,
        identity="bigfleet-operator",
    )


def running(name: str, identity: str = "1", **more: Any) -> dict[str, Any]:
    """A container's status; `more` are its states."""
    state = {"running": {"startedAt": "2026-11-21T08:00:00Z"}}
    return {"name": name, "containerID": f"containerd://{identity}", "state": state, **more}


def ended(exit_code: int) -> dict[str, Any]:
    """A state."""
    return {"terminated": {"exitCode": exit_code, "reason": "Error"}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    """A state."""
    return {"waiting": {"reason": reason, "message": message}}


def pod(
    name: str,
    *statuses: dict[str, Any],
    namespace: str = "bigfleet-system",
    component: str = "",
    label: str = "",
    **metadata: Any,
) -> dict[str, Any]:
    """A Pod as the API server lists it."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {COMPONENT_ANNOTATION: component} if component else {},
            "labels": {"component": label} if label else {},
            **metadata,
        },
        "status": {"containerStatuses": list(statuses)},
    }


def pod_list(*pods: dict[str, Any]) -> bytes:
    """The body of an answer."""
    return json.dumps({"kind": "PodList", "items": list(pods)}).encode()
