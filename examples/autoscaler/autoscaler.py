"""A complete autoscaler in one file, to measure with `system: command`.

Each second it registers one machine for every kind of pod that kube-scheduler has no Node for. Its
cluster is that of KUBECONFIG, its machines are those of the file SCALETEST_FLEET. It never removes
one.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from bigfleet.kube.client import KubeClient

_INTERVAL_SECONDS = 1.0
_TYPE = "node.kubernetes.io/instance-type"
_OWN_LABEL = {"example.com/autoscaler": "one-file"}


async def run(fleet: list[dict[str, Any]]) -> None:
    """Register machines of `fleet` until ended by a signal."""
    async with await KubeClient.from_kubeconfig(Path(os.environ["KUBECONFIG"])) as client:
        while True:
            for types in await unserved(client):
                machine = next((each for each in fleet if each["instance_type"] in types), None)
                if machine is not None:
                    fleet.remove(machine)
                    await client.create("/api/v1/nodes", node(machine))
            await asyncio.sleep(_INTERVAL_SECONDS)


async def unserved(client: KubeClient) -> set[tuple[str, ...]]:
    """The instance types that pods without a Node accept, once for each kind of pod."""
    query = {"fieldSelector": "spec.nodeName="}
    pods = json.loads(await client.get("/api/v1/pods", query))["items"]
    return {accepted_types(pod["spec"]) for pod in pods if is_unschedulable(pod["status"])}


def is_unschedulable(status: dict[str, Any]) -> bool:
    """Whether kube-scheduler has tried, and found no Node."""
    conditions = status.get("conditions", [])
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


def accepted_types(spec: dict[str, Any]) -> tuple[str, ...]:
    """The instance types that the pod's required node affinity names."""
    required = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = required.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    return tuple(
        value
        for term in terms.get("nodeSelectorTerms", [])
        for expression in term.get("matchExpressions", [])
        if expression["key"] == _TYPE
        for value in expression["values"]
    )


def node(machine: dict[str, Any]) -> dict[str, Any]:
    """The Node of a machine, which kwok makes Ready."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": machine["id"],
            "labels": {**machine["labels"], **_OWN_LABEL, "kubernetes.io/hostname": machine["id"]},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": machine.get("taints", [])},
        "status": {"capacity": machine["resources"], "allocatable": machine["resources"]},
    }


if __name__ == "__main__":
    lines = Path(os.environ["SCALETEST_FLEET"]).read_text().splitlines()
    asyncio.run(run([json.loads(line) for line in lines]))
