"""Nodes and upcoming machines as the pod controller reads them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from bigfleet.api.wellknown import MACHINE_LABEL, RECLAIM_DEADLINE
from bigfleet.controllers.disruption_cost import node_blocking_annotation
from bigfleet.controllers.pod_controller.shapes import Shape
from bigfleet.model import resources
from bigfleet.model.errors import InvalidInput
from bigfleet.model.need import Taint

_UPCOMING_PHASES = ("Provisioning", "Launched", "Registered")


@dataclass(frozen=True, slots=True)
class Node:
    """A Node as kube-scheduler sees it. `ours`: it is a machine of the fleet; `reclaiming`: that
    machine is being reclaimed; `blocking_annotation` is an annotation that forbids it; `created` is
    in RFC 3339.
    """

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    cordoned: bool = False
    ours: bool = True
    reclaiming: bool = False
    blocking_annotation: str = ""
    created: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that is joining the cluster."""

    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    taints: tuple[Taint, ...]

    def could_fit(self, shape: Shape) -> bool:
        """Whether a pod of that shape would fit on it if it is empty."""
        have = self.allocatable
        return (
            all(have.get(name, 0) >= amount for name, amount in shape.requests.items())
            and shape.node_filter.admit("", self.labels)
            and shape.node_filter.tolerate(self.taints)
        )


class _NodeMetadata(msgspec.Struct, rename="camel"):
    name: str
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str = ""


class _Taint(msgspec.Struct):
    key: str
    effect: str
    value: str = ""


class _NodeSpec(msgspec.Struct):
    unschedulable: bool = False
    taints: list[_Taint] | None = None


class _Condition(msgspec.Struct):
    type: str
    status: str


class _NodeStatus(msgspec.Struct):
    allocatable: dict[str, str] | None = None
    conditions: list[_Condition] | None = None


class RawNode(msgspec.Struct):
    """The parts of a Node that are decoded."""

    metadata: _NodeMetadata
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)

    def read(self) -> Node:
        """Convert it to a Node."""
        labels, annotations = self.metadata.labels or {}, self.metadata.annotations or {}
        conditions = self.status.conditions or ()
        return Node(
            name=self.metadata.name,
            labels=labels,
            allocatable=_capacity(self.status.allocatable or {}),
            taints=_taints(self.spec.taints),
            ready=any(c.type == "Ready" and c.status == "True" for c in conditions),
            cordoned=self.spec.unschedulable,
            ours=MACHINE_LABEL in labels,
            reclaiming=RECLAIM_DEADLINE in annotations,
            blocking_annotation=node_blocking_annotation(annotations),
            created=self.metadata.creation_timestamp,
        )


class _UpcomingSpec(msgspec.Struct):
    resources: dict[str, str | int] = {}
    labels: dict[str, str] | None = None
    taints: list[_Taint] | None = None


class _UpcomingStatus(msgspec.Struct):
    phase: str = ""


class RawUpcomingNode(msgspec.Struct):
    """The parts of an UpcomingNode that are decoded."""

    metadata: _NodeMetadata
    spec: _UpcomingSpec = msgspec.field(default_factory=_UpcomingSpec)
    status: _UpcomingStatus = msgspec.field(default_factory=_UpcomingStatus)

    def read(self) -> Machine | None:
        """The machine while it is joining; None once it has joined or was removed."""
        if self.status.phase not in _UPCOMING_PHASES:
            return None
        amounts = _capacity({name: str(each) for name, each in self.spec.resources.items()})
        return Machine(self.spec.labels or {}, amounts, _taints(self.spec.taints))


def _taints(raw: Iterable[_Taint] | None) -> tuple[Taint, ...]:
    return tuple(Taint(t.key, t.value, t.effect) for t in raw or ())


def _capacity(quantities: Mapping[str, str]) -> dict[str, int]:
    """The capacity; invalid amounts are ignored."""
    found = {}
    for name, quantity in quantities.items():
        try:
            found[name] = resources.parse(name, quantity, round_up=False)
        except InvalidInput:
            continue
    return found
