"""The parts of a Pod and of a CapacityRequest that the pod controller reads."""

from __future__ import annotations

from typing import Any

import msgspec

POD_UID_LABEL = "bigfleet.lucy.sh/pod-uid"
INTERRUPTION_PENALTY = "bigfleet.lucy.sh/interruption-penalty"
RECLAMATION_PENALTY = "bigfleet.lucy.sh/reclamation-penalty"

# The API server writes a quantity as it was given, which may be a number.
Quantities = dict[str, str | int | float]


class _Struct(msgspec.Struct, rename="camel"):
    pass


class Owner(_Struct):
    """What an object belongs to."""

    kind: str
    name: str
    controller: bool = False
    uid: str = ""


class Metadata(_Struct):
    """A Pod's names, marks and owners."""

    name: str
    namespace: str
    uid: str
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None


class Resources(_Struct):
    """What a container or Pod asks for."""

    requests: Quantities | None = None


class Container(_Struct):
    """A container or an init container; the latter is a sidecar if it restarts `Always`."""

    resources: Resources | None = None
    restart_policy: str = ""


class Expression(_Struct):
    """One condition on labels or fields."""

    key: str
    operator: str
    values: list[str] | None = None


class NodeTerm(_Struct):
    """Conditions on one Node, all of which must hold."""

    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None


class NodeTerms(_Struct):
    """Terms of which one must hold."""

    node_selector_terms: list[NodeTerm] | None = None


class NodeAffinity(_Struct):
    """Which Nodes the Pod must or would like to run on."""

    required: NodeTerms | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: list[msgspec.Raw] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class LabelSelector(_Struct):
    """Which Pods: those whose labels meet every condition."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Expression] | None = None


class PodTerm(_Struct):
    """Which Pods, and how near is meant."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None


class PodAffinity(_Struct):
    """Which Pods to be near, or far from."""

    required: list[PodTerm] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: list[msgspec.Raw] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(_Struct):
    """All affinities of a Pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SpreadConstraint(_Struct):
    """How evenly a workload spreads over the domains of a topology key."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: str


class PodSpec(_Struct):
    """What a Pod asks of its machine."""

    containers: list[Container]
    node_name: str = ""
    init_containers: list[Container] | None = None
    overhead: Quantities | None = None
    resources: Resources | None = None
    priority: int | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None


class PodStatus(_Struct):
    """How far a Pod has come."""

    phase: str = ""


class Pod(_Struct):
    """A Pod as far as it says what its machine must be like."""

    metadata: Metadata
    spec: PodSpec
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def terminal(self) -> bool:
        """Whether it will never run again."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def workload(self) -> str:
        """The Pod's namespace and controller, or its own name if it has none."""
        owners = self.metadata.owner_references or ()
        owner = next((o for o in owners if o.controller), None)
        name = f"{owner.kind}/{owner.name}" if owner else f"Pod/{self.metadata.name}"
        return f"{self.metadata.namespace}/{name}"


class RequestMetadata(_Struct):
    """A request's names and labels."""

    name: str
    namespace: str
    labels: dict[str, str] | None = None


class ExistingRequest(_Struct):
    """A CapacityRequest as found in the cluster."""

    metadata: RequestMetadata
    spec: dict[str, Any]

    @property
    def pod_uid(self) -> str:
        """The Pod it was written for, or "" if it is somebody else's."""
        return (self.metadata.labels or {}).get(POD_UID_LABEL, "")
