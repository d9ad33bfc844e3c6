"""Nodes as the operator reads them, and how they relate to the fleet's machines."""

from __future__ import annotations

from functools import cached_property

import msgspec

from bigfleet.api.wellknown import MACHINE_LABEL, RECLAIM_DEADLINE, RECLAIM_REVIEW
from bigfleet.kube.pod_types import Condition
from bigfleet.kube.types import ObjectMeta


class NodeTaint(msgspec.Struct, frozen=True, order=True):
    """A taint of a Node."""

    key: str
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        """As kubectl prints it."""
        return (
            f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"
        )


class NodeSpec(msgspec.Struct):
    """A Node's provider id, whether it is cordoned, and its taints."""

    provider_id: str = msgspec.field(name="providerID", default="")
    unschedulable: bool = False
    taints: list[NodeTaint] | None = None


class NodeStatus(msgspec.Struct):
    """A Node's conditions."""

    conditions: list[Condition] | None = None


class Node(msgspec.Struct, dict=True):
    """The parts of a Node that the operator reads. It is not changed once read: each roll-up asks
    every Node what is derived from them, so that is kept.
    """

    metadata: ObjectMeta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)

    @cached_property
    def ready(self) -> bool:
        """Whether its condition Ready is True."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions or ())

    @property
    def machine(self) -> str:
        """Its machine by its label; "" without one."""
        return (self.metadata.labels or {}).get(MACHINE_LABEL, "")

    def is_machine(self, machine_id: str, provider_id: str) -> bool:
        """Whether this Node is that machine: by provider id where both are known, else by label."""
        if provider_id and self.spec.provider_id:
            return provider_id == self.spec.provider_id
        return (self.metadata.labels or {}).get(MACHINE_LABEL) == machine_id

    @cached_property
    def not_owned_reason(self) -> str:
        """Why this is not the Node of the machine of that name; "" when it is."""
        machine = (self.metadata.labels or {}).get(MACHINE_LABEL)
        name = self.metadata.name
        if machine == name:
            return ""
        if machine is None:
            return f"node {name} does not belong to the fleet: it has no label {MACHINE_LABEL}"
        return f"node {name} belongs to another machine: its label {MACHINE_LABEL} is {machine}"

    @property
    def under_review(self) -> bool:
        """Whether the operator cordoned it to review the disruption of a reclaim."""
        return RECLAIM_REVIEW in (self.metadata.annotations or {})

    @cached_property
    def reclaim_deadline(self) -> float | None:
        """The deadline of its reclaim in Unix time; None when it is not being reclaimed."""
        try:
            return float((self.metadata.annotations or {})[RECLAIM_DEADLINE])
        except (KeyError, ValueError):
            return None

    @property
    def drain_deadline(self) -> float | None:
        """As `reclaim_deadline`, but None for a Node that is not cordoned: it has joined again, or
        was uncordoned by a user.
        """
        return self.reclaim_deadline if self.spec.unschedulable else None


def node_path(name: str) -> str:
    """The API path of the Node."""
    return f"/api/v1/nodes/{name}"
