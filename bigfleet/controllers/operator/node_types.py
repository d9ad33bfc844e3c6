"""The names by which this cluster's objects and the fleet's machines know each other."""

from __future__ import annotations

from datetime import datetime

import msgspec

from bigfleet.api.wellknown import MACHINE_LABEL, RECLAIM_DEADLINE, RECLAIM_REVIEW


class NodeMetadata(msgspec.Struct):
    """A Node's names and marks."""

    name: str
    uid: str
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    created: datetime | None = msgspec.field(name="creationTimestamp", default=None)


class NodeTaint(msgspec.Struct, frozen=True, order=True):
    """What keeps pods off a Node that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        """As kubectl writes it."""
        return (
            f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"
        )


class NodeSpec(msgspec.Struct):
    """A Node's name at its provider, whether it is cordoned, and what else keeps pods off it."""

    provider_id: str = msgspec.field(name="providerID", default="")
    unschedulable: bool = False
    taints: list[NodeTaint] | None = None


class _Condition(msgspec.Struct):
    type: str
    status: str


class NodeStatus(msgspec.Struct):
    """How a Node is."""

    conditions: list[_Condition] | None = None


class Node(msgspec.Struct):
    """A Node as far as the operator must know whose it is."""

    metadata: NodeMetadata
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)

    @property
    def ready(self) -> bool:
        """Whether its kubelet says that it can run pods."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions or ())

    @property
    def machine(self) -> str:
        """The machine that it says it is, "" where it says none."""
        return (self.metadata.labels or {}).get(MACHINE_LABEL, "")

    def is_machine(self, machine_id: str, provider_id: str) -> bool:
        """Whether this Node is that machine: by provider id where both are known, else by label."""
        if provider_id and self.spec.provider_id:
            return provider_id == self.spec.provider_id
        return (self.metadata.labels or {}).get(MACHINE_LABEL) == machine_id

    @property
    def not_owned_reason(self) -> str:
        """Why this is not a Node of the machine of its name; "" when it is."""
        machine = (self.metadata.labels or {}).get(MACHINE_LABEL)
        name = self.metadata.name
        if machine == name:
            return ""
        if machine is None:
            return f"node {name} is none of the fleet's: it has no label {MACHINE_LABEL}"
        return f"node {name} is another machine's: its label {MACHINE_LABEL} is {machine}"

    @property
    def under_review(self) -> bool:
        """Whether we cordoned it to see what its reclaim would disturb."""
        return RECLAIM_REVIEW in (self.metadata.annotations or {})

    @property
    def reclaim_deadline(self) -> float | None:
        """When our reclaim of it ends, in seconds since 1970; None when it is not reclaimed."""
        try:
            return float((self.metadata.annotations or {})[RECLAIM_DEADLINE])
        except (KeyError, ValueError):
            return None

    @property
    def drain_deadline(self) -> float | None:
        """As `reclaim_deadline`, but None for a Node that takes pods: it began a new life since, or
        somebody wanted it back.
        """
        return self.reclaim_deadline if self.spec.unschedulable else None


class Nodes(msgspec.Struct):
    """A list of Nodes."""

    items: list[Node]


def node_path(name: str) -> str:
    """Where the Node lives."""
    return f"/api/v1/nodes/{name}"
