"""The parts of a Pod and of a CapacityRequest that the pod controller reads."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from bigfleet.api.install import GANG_MEMBERS

POD_UID_LABEL = "bigfleet.lucy.sh/pod-uid"
INTERRUPTION_PENALTY = "bigfleet.lucy.sh/interruption-penalty"

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
    """A Pod's names, marks, owners and, if it is on its way out, since when."""

    name: str
    namespace: str
    uid: str
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None
    labels: dict[str, str] | None = None
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None

    def slim(self, *, owners: bool = False) -> Metadata:
        """What must be kept of it for as long as the Pod lives: there are many Pods."""
        said = (self.annotations or {}).get(GANG_MEMBERS)
        return Metadata(
            name=self.name,
            namespace=sys.intern(self.namespace),
            uid=self.uid,
            annotations={GANG_MEMBERS: said} if said is not None else None,
            owner_references=self.owner_references if owners else None,
        )


class Resources(_Struct):
    """What a container or Pod asks for."""

    requests: Quantities | None = None


class Port(_Struct):
    """A port of a container; `host_port` is 0 unless it takes that port of the Node, too."""

    host_port: int = 0
    protocol: str = "TCP"


class Container(_Struct):
    """A container or an init container; the latter is a sidecar if it restarts `Always`."""

    resources: Resources | None = None
    restart_policy: str = ""
    ports: list[Port] | None = None


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
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"


class Toleration(_Struct):
    """A taint that does not keep the Pod away."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Claim(_Struct):
    """The PersistentVolumeClaim that a volume is made from."""

    claim_name: str = ""


class Volume(_Struct):
    """A volume, as far as it is a claim or brings one along."""

    name: str
    persistent_volume_claim: Claim | None = None
    ephemeral: msgspec.Raw | None = None


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
    tolerations: list[Toleration] | None = None
    volumes: list[Volume] | None = None


class Condition(_Struct):
    """One of the things that are said of an object."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class PodStatus(_Struct):
    """How far a Pod has come."""

    phase: str = ""
    conditions: list[Condition] | None = None
    nominated_node_name: str = ""


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
    def refusal(self) -> str | None:
        """Why kube-scheduler has found no place for it; None unless it has tried in vain."""
        if self.spec.node_name or self.status.phase != "Pending":
            return None
        for each in self.status.conditions or ():
            if each.type == "PodScheduled":
                refused = each.status == "False" and each.reason == "Unschedulable"
                return each.message if refused else None
        return None

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


class RequestStatus(_Struct):
    """What others say of a request."""

    conditions: list[Condition] | None = None


class ExistingRequest(_Struct):
    """A CapacityRequest as found in the cluster."""

    metadata: RequestMetadata
    spec: dict[str, Any]
    status: RequestStatus = msgspec.field(default_factory=RequestStatus)

    @property
    def pod_uid(self) -> str:
        """The Pod it was written for, or "" if it is somebody else's."""
        return (self.metadata.labels or {}).get(POD_UID_LABEL, "")
