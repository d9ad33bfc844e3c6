"""The names by which this cluster's objects and the fleet's machines know each other."""

from __future__ import annotations

import msgspec

from bigfleet.api.marks import MACHINE_LABEL, RECLAIM_DEADLINE


class NodeMetadata(msgspec.Struct):
    """A Node's names and marks."""

    name: str
    uid: str
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class NodeSpec(msgspec.Struct):
    """A Node's name at its provider."""

    provider_id: str = msgspec.field(name="providerID", default="")


class Node(msgspec.Struct):
    """A Node as far as the operator must know whose it is."""

    metadata: NodeMetadata
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)

    def is_machine(self, machine_id: str, provider_id: str) -> bool:
        """Whether this Node is that machine: by provider id where both are known, else by label."""
        if provider_id and self.spec.provider_id:
            return provider_id == self.spec.provider_id
        return (self.metadata.labels or {}).get(MACHINE_LABEL) == machine_id

    @property
    def reclaim_deadline(self) -> float | None:
        """When our reclaim of it ends, in seconds since 1970; None when it is not reclaimed."""
        try:
            return float((self.metadata.annotations or {})[RECLAIM_DEADLINE])
        except (KeyError, ValueError):
            return None


class Nodes(msgspec.Struct):
    """A list of Nodes."""

    items: list[Node]


def node_path(name: str) -> str:
    """Where the Node lives."""
    return f"/api/v1/nodes/{name}"
