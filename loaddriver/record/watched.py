"""Objects as the recorder's watches deliver them: the fields that it uses, and no more."""

from __future__ import annotations

import msgspec

from loaddriver.record.audit_line import Condition, is_ready

_CONDITIONS = msgspec.json.Decoder(list[Condition])


class Meta(msgspec.Struct):
    """Identity, and what was written on it."""

    name: str
    uid: str
    namespace: str = ""
    labels: dict[str, str] = {}


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _PodStatus(msgspec.Struct):
    phase: str = ""
    conditions: msgspec.Raw = msgspec.Raw()


class Pod(msgspec.Struct):
    """A Pod; its conditions are decoded only when asked for, because most events need none."""

    metadata: Meta
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    @property
    def refusal(self) -> str:
        """Why the scheduler has not placed it, in its words; "" where it has not said."""
        raw = self.status.conditions
        for each in _CONDITIONS.decode(raw) if raw else ():
            if each.type == "PodScheduled" and each.status == "False":
                return each.message or each.reason
        return ""


class _NodeStatus(msgspec.Struct):
    conditions: list[Condition] = []


class Node(msgspec.Struct):
    """A Node."""

    metadata: Meta
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)

    @property
    def ready(self) -> bool:
        """Whether its kubelet says that it can run Pods."""
        return is_ready(self.status.conditions)


class _RequestStatus(msgspec.Struct):
    phase: str = ""


class CapacityRequest(msgspec.Struct):
    """A CapacityRequest."""

    metadata: Meta
    status: _RequestStatus = msgspec.field(default_factory=_RequestStatus)

    @property
    def acknowledged(self) -> bool:
        """Whether the operator says that a shard knows of it."""
        return self.status.phase == "Acknowledged"
