"""Watched objects: only the fields that readers use.

Rarely used fields stay undecoded, since every change of every Pod is decoded.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from loaddriver.record.audit_line import ACKNOWLEDGED, Condition, is_ready

_CONDITIONS = msgspec.json.Decoder(list[Condition])


class _Read(msgspec.Struct, rename="camel"):
    pass


class Meta(_Read):
    """An object's identity, labels and annotations.

    `creation_timestamp` is in RFC 3339 with whole seconds, so it sorts as text.
    """

    name: str
    uid: str
    namespace: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class PodSpec(_Read):
    """A Pod's node and scheduling constraints; the latter are undecoded."""

    node_name: str = ""
    containers: msgspec.Raw = msgspec.Raw()
    init_containers: msgspec.Raw = msgspec.Raw()
    overhead: msgspec.Raw = msgspec.Raw()
    node_selector: msgspec.Raw = msgspec.Raw()
    affinity: msgspec.Raw = msgspec.Raw()


class _PodStatus(_Read):
    phase: str = ""
    conditions: msgspec.Raw = msgspec.Raw()


class Pod(_Read):
    """A Pod."""

    metadata: Meta
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    @property
    def ended(self) -> bool:
        """Whether it has finished and its node's capacity is free again."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def unschedulable(self) -> bool:
        """Whether the scheduler has found no node for it."""
        return self._unschedulable_condition() is not None

    @property
    def unschedulable_message(self) -> str:
        """The scheduler's message why it is unschedulable, or ""."""
        condition = self._unschedulable_condition()
        return condition.message or condition.reason if condition else ""

    def _unschedulable_condition(self) -> Condition | None:
        raw = self.status.conditions
        for each in _CONDITIONS.decode(raw) if raw else ():
            if each.type == "PodScheduled" and each.status == "False":
                return each
        return None


class Taint(_Read):
    """A taint of a Node."""

    effect: str = ""


class _NodeSpec(_Read):
    unschedulable: bool = False
    taints: list[Taint] = []


class _NodeStatus(_Read):
    allocatable: dict[str, str] = {}
    conditions: list[Condition] = []


class Node(_Read):
    """A Node."""

    metadata: Meta
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)

    @property
    def ready(self) -> bool:
        """Whether its Ready condition is true."""
        return is_ready(self.status.conditions)


class _RequestStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    acknowledged_at: datetime | None = None


class CapacityRequest(msgspec.Struct):
    """A CapacityRequest."""

    metadata: Meta
    status: _RequestStatus = msgspec.field(default_factory=_RequestStatus)

    @property
    def acknowledged(self) -> bool:
        """Whether the operator reports that a shard has received it."""
        return self.status.phase == ACKNOWLEDGED
