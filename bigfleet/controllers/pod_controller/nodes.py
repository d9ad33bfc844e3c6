"""Which Nodes there are, and which machines are on their way to become some. Pure."""

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
    """A Node as kube-scheduler sees it. `ours` if a machine of the fleet is behind it, `reclaiming`
    while that machine is being taken back, `blocking_annotation` is an annotation that forbids
    this, `created` is as of RFC 3339.
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
    """A machine on its way into the cluster."""

    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    taints: tuple[Taint, ...]

    def could_fit(self, shape: Shape) -> bool:
        """Whether a pod of that shape could run on it, were it empty."""
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
    """A Node as the API server writes it, as far as it matters here."""

    metadata: _NodeMetadata
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)

    def read(self) -> Node:
        """As the rest of this module knows it."""
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
    """An UpcomingNode as the operator wrote it."""

    metadata: _NodeMetadata
    spec: _UpcomingSpec = msgspec.field(default_factory=_UpcomingSpec)
    status: _UpcomingStatus = msgspec.field(default_factory=_UpcomingStatus)

    def read(self) -> Machine | None:
        """The machine while it is on its way; None once it has joined, or has gone."""
        if self.status.phase not in _UPCOMING_PHASES:
            return None
        amounts = _capacity({name: str(each) for name, each in self.spec.resources.items()})
        return Machine(self.spec.labels or {}, amounts, _taints(self.spec.taints))


def _taints(raw: Iterable[_Taint] | None) -> tuple[Taint, ...]:
    return tuple(Taint(t.key, t.value, t.effect) for t in raw or ())


def _capacity(quantities: Mapping[str, str]) -> dict[str, int]:
    """What it has; an amount that cannot be read counts as none."""
    found = {}
    for name, quantity in quantities.items():
        try:
            found[name] = resources.parse(name, quantity, round_up=False)
        except InvalidInput:
            continue
    return found
