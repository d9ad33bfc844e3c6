"""The parts of a pod's spec and status that decide where it can be scheduled."""

from __future__ import annotations

import msgspec

# The API server returns a quantity as it was submitted, which may be a number.
Quantities = dict[str, str | int | float]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class _Struct(msgspec.Struct, rename="camel"):
    pass


class ResourceRequirements(_Struct):
    """The resources that a container or Pod requests, and its limits."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class ContainerPort(_Struct):
    """A port of a container; `host_port` is 0 unless it uses a port of the node."""

    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(name="hostIP", default="")


class Container(_Struct):
    """A container or init container; an init container that restarts `Always` is a sidecar."""

    name: str = ""
    resources: ResourceRequirements | None = None
    restart_policy: str = ""
    ports: list[ContainerPort] | None = None


class SelectorRequirement(_Struct):
    """One requirement on labels or fields."""

    key: str
    operator: str
    values: list[str] | None = None


class NodeSelectorTerm(_Struct):
    """Requirements on a Node, ANDed."""

    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(_Struct):
    """Terms, ORed."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(_Struct):
    """The Nodes that the Pod requires or prefers."""

    required: NodeSelector | None = msgspec.field(name=_REQUIRED, default=None)
    preferred: list[msgspec.Raw] | None = msgspec.field(name=_PREFERRED, default=None)


class LabelSelector(_Struct):
    """Selects the Pods whose labels meet every requirement."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[SelectorRequirement] | None = None


class PodAffinityTerm(_Struct):
    """The Pods to be co-located with or kept away from, and the topology that counts."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None


class PodAffinity(_Struct):
    """Pod affinity or anti-affinity."""

    required: list[PodAffinityTerm] | None = msgspec.field(name=_REQUIRED, default=None)
    preferred: list[msgspec.Raw] | None = msgspec.field(name=_PREFERRED, default=None)


class Affinity(_Struct):
    """All affinities of a Pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(_Struct):
    """How evenly pods must spread over the domains of a topology key."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: list[str] | None = None


class PodToleration(_Struct):
    """The taints that the Pod tolerates."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class ClaimVolumeSource(_Struct):
    """The name of a PersistentVolumeClaim."""

    claim_name: str


class Volume(_Struct):
    """A volume; the claim of an `ephemeral` one is named after Pod and volume."""

    name: str = ""
    persistent_volume_claim: ClaimVolumeSource | None = None
    ephemeral: dict[str, msgspec.Raw] | None = None


class PodSpec(_Struct):
    """The parts of a Pod's spec that scheduling depends on."""

    containers: list[Container]
    node_name: str = ""
    init_containers: list[Container] | None = None
    overhead: Quantities | None = None
    resources: ResourceRequirements | None = None
    priority: int | None = None
    preemption_policy: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    tolerations: list[PodToleration] | None = None
    scheduling_gates: list[msgspec.Raw] | None = None
    volumes: list[Volume] | None = None
    resource_claims: list[msgspec.Raw] | None = None
    host_network: bool = False


class ContainerStatus(_Struct):
    """A container's `resources` as actuated by the kubelet, and as admitted by it."""

    name: str
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities | None = None


class Condition(_Struct):
    """One condition of an object."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(_Struct):
    """A Pod's phase, and the resources allocated to it."""

    phase: str = ""
    conditions: list[Condition] | None = None
    nominated_node_name: str = ""
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities | None = None
