"""What a joining host makes of its bootstrap blob: the Node that it registers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from bigfleet.kube.client import InlineAccess
from bigfleet.model import resources
from bigfleet.model.machine import Machine
from bigfleet.ports.host import Boot, HostFailure

KWOK_ANNOTATION = "kwok.x-k8s.io/node"
# kwok is started to overlook Nodes with this label, and lets a Node go the moment it gets it.
# Taking the annotation away would not do: kwok drops the event that should tell it to let go.
HEARTBEAT_LABEL, HEARTBEAT_STOPPED = "bigfleet.lucy.sh/heartbeat", "stopped"
OPERATION_ANNOTATION = "bigfleet.lucy.sh/operation"
HOSTNAME_LABEL = "kubernetes.io/hostname"
_NOT_READY = {
    "type": "Ready",
    "status": "False",
    "reason": "Booting",
    "message": "the host has just been switched on",
}


class _Kubelet(msgspec.Struct, rename="camel"):
    max_pods: int | None = None


class Blob(msgspec.Struct, rename="camel"):
    """The bootstrap blob; fields that a host has no use for are passed over."""

    api_server: str
    ca_pem: str
    token: str
    node_name: str
    labels: dict[str, str] = {}
    taints: list[dict[str, str]] = []
    kubelet: _Kubelet = msgspec.field(default_factory=_Kubelet)

    @property
    def access(self) -> InlineAccess:
        """The way to the API server."""
        return InlineAccess(self.api_server, self.ca_pem, self.token)


def decode(boot: Boot) -> Blob:
    """The boot's blob; HostFailure, without quoting it (it holds a token), if it is unusable."""
    try:
        blob = msgspec.json.decode(boot.blob, type=Blob)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HostFailure(f"the bootstrap blob cannot be used: {error}") from None
    if blob.node_name != boot.machine.id:
        raise HostFailure(
            f"the bootstrap blob is for Node {blob.node_name!r}, this machine is {boot.machine.id}"
        )
    return blob


def provider_id(provider_name: str, machine: Machine) -> str:
    """What marks a Node as this machine's."""
    return f"bigfleet://{provider_name}/{machine.id}"


def node(boot: Boot, blob: Blob, provider_name: str) -> Mapping[str, Any]:
    """The Node to register. The machine's own labels and taints are facts: the blob cannot change
    them.
    """
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
            # As a kubelet does: from a Node without a Ready condition Kubernetes takes the
            # not-ready taint away at once, and kube-scheduler fills it before its DaemonSets' pods.
            "conditions": [_NOT_READY],
        },
    }


def _amounts(units: Mapping[str, int], blob: Blob) -> dict[str, str]:
    amounts = resources.texts(units)
    if blob.kubelet.max_pods is not None:
        amounts[resources.PODS] = str(blob.kubelet.max_pods)
    return amounts


def takeover(registration: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Merge patches for a Node that an earlier life of the machine left behind.

    The first goes to the Node and is refused if it is another machine's, because a providerID never
    changes. The second goes to its status: what was Ready then is not Ready now. The third, to the
    Node, begins the new life.
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
