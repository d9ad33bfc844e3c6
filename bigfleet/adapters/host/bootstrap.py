"""The Node that a joining host registers from its bootstrap blob. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from bigfleet.kube.client import InlineAccess
from bigfleet.model import resources
from bigfleet.model.errors import UNDECODABLE
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.machine import Machine
from bigfleet.ports.host import Boot, HostFailure

KWOK_ANNOTATION = "kwok.x-k8s.io/node"
# kwok runs with a selector that excludes Nodes with this label, and stops managing a Node that gets
# it. Removing the annotation would not do: kwok drops that event.
HEARTBEAT_LABEL, HEARTBEAT_STOPPED = "bigfleet.lucy.sh/heartbeat", "stopped"
OPERATION_ANNOTATION = "bigfleet.lucy.sh/operation"
_NOT_READY = {
    "type": "Ready",
    "status": "False",
    "reason": "Booting",
    "message": "the host is booting",
}


class _Kubelet(msgspec.Struct, rename="camel"):
    max_pods: int | None = None


class Blob(msgspec.Struct, rename="camel"):
    """The bootstrap blob; unknown fields are ignored."""

    api_server: str
    ca_pem: str
    token: str
    node_name: str
    labels: dict[str, str] = {}
    taints: list[dict[str, str]] = []
    kubelet: _Kubelet = msgspec.field(default_factory=_Kubelet)

    @property
    def access(self) -> InlineAccess:
        """Access to the API server."""
        return InlineAccess(self.api_server, self.ca_pem, self.token)


def decode(boot: Boot) -> Blob:
    """The boot's blob; HostFailure if it is invalid, without quoting it, as it holds a token."""
    try:
        blob = msgspec.json.decode(boot.blob, type=Blob)
    except UNDECODABLE as error:
        raise HostFailure(f"invalid bootstrap blob: {error}") from None
    if blob.node_name != boot.machine.id:
        raise HostFailure(
            f"the bootstrap blob is for Node {blob.node_name!r}, this machine is {boot.machine.id}"
        )
    return blob


def provider_id(provider_name: str, machine: Machine) -> str:
    """The providerID of the machine's Node."""
    return f"bigfleet://{provider_name}/{machine.id}"


def node(boot: Boot, blob: Blob, provider_name: str) -> Mapping[str, Any]:
    """The Node to register. The machine's own labels and taints override the blob's."""
    machine = boot.machine
    taints = [{"key": t.key, "value": t.value, "effect": t.effect} for t in machine.taints]
    own = {(t.key, t.effect) for t in machine.taints}
    extra = [t for t in blob.taints if (t.get("key"), t.get("effect")) not in own]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": machine.id,
            "labels": {**blob.labels, **machine.labels, HOSTNAME_LABEL: machine.id},
            "annotations": {KWOK_ANNOTATION: "fake", OPERATION_ANNOTATION: boot.operation_id},
        },
        "spec": {"providerID": provider_id(provider_name, machine), "taints": [*taints, *extra]},
        "status": {
            "capacity": _amounts(machine.resources, blob),
            "allocatable": _amounts(machine.allocatable, blob),
            # As a kubelet does: without a Ready condition Kubernetes removes the not-ready taint at
            # once, and kube-scheduler places other pods before those of DaemonSets.
            "conditions": [_NOT_READY],
        },
    }


def _amounts(units: Mapping[str, int], blob: Blob) -> dict[str, str]:
    amounts = resources.texts(units)
    if blob.kubelet.max_pods is not None:
        amounts[resources.PODS] = str(blob.kubelet.max_pods)
    return amounts


def takeover(registration: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Merge patches that take over a Node left behind by an earlier boot of the machine.

    The first, to the Node, is rejected if the Node is another machine's, because a providerID is
    immutable. The second, to its status, makes it not Ready. The third, to the Node, resets its
    metadata and taints.
    """
    spec = registration["spec"]
    metadata = registration["metadata"]
    return (
        {"spec": {"providerID": spec["providerID"]}},
        {"status": registration["status"]},
        {
            "metadata": {
                "labels": {**metadata["labels"], HEARTBEAT_LABEL: None},
                "annotations": metadata["annotations"],
            },
            "spec": {"taints": spec["taints"], "unschedulable": None},
        },
    )
