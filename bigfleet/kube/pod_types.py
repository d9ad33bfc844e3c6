"""The parts of a pod's spec and status that decide where it can run."""

from __future__ import annotations

import msgspec

# The API server writes a quantity as it was given, which may be a number.
Quantities = dict[str, str | int | float]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class _Struct(msgspec.Struct, rename="camel"):
    pass


class ResourceRequirements(_Struct):
    """What a container or Pod asks for."""

    requests: Quantities | None = None


class ContainerPort(_Struct):
    """A port of a container; `host_port` is 0 unless the machine's own port is taken."""

    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(name="hostIP", default="")


class Container(_Struct):
    """A container or an init container; the latter is a sidecar if it restarts `Always`."""

    name: str = ""
    resources: ResourceRequirements | None = None
    restart_policy: str = ""
    ports: list[ContainerPort] | None = None


class SelectorRequirement(_Struct):
    """One condition on labels or fields."""

    key: str
    operator: str
    values: list[str] | None = None


class NodeSelectorTerm(_Struct):
    """Conditions on one Node, all of which must hold."""

    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(_Struct):
    """Terms of which one must hold."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(_Struct):
    """Which Nodes the Pod must or would like to run on."""

    required: NodeSelector | None = msgspec.field(name=_REQUIRED, default=None)
    preferred: list[msgspec.Raw] | None = msgspec.field(name=_PREFERRED, default=None)


class LabelSelector(_Struct):
    """Which Pods: those whose labels meet every condition."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[SelectorRequirement] | None = None


class PodAffinityTerm(_Struct):
    """Which Pods, and how near is meant."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None


class PodAffinity(_Struct):
    """Which Pods to be near, or far from."""

    required: list[PodAffinityTerm] | None = msgspec.field(name=_REQUIRED, default=None)
    preferred: list[msgspec.Raw] | None = msgspec.field(name=_PREFERRED, default=None)


class Affinity(_Struct):
    """All affinities of a Pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(_Struct):
    """How evenly a workload spreads over the domains of a topology key."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: list[str] | None = None


class PodToleration(_Struct):
    """Which taints do not keep the Pod away."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class ClaimVolumeSource(_Struct):
    """The name of a PersistentVolumeClaim."""

    claim_name: str


class Volume(_Struct):
    """A volume; `ephemeral` ones have a claim that is named after Pod and volume."""

    name: str = ""
    persistent_volume_claim: ClaimVolumeSource | None = None
    ephemeral: dict[str, msgspec.Raw] | None = None


class PodSpec(_Struct):
    """What a Pod asks of its machine."""

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
    """What a container has: `resources` as its machine carries them out, and as admitted there."""

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
    """How far a Pod has come, and what its machine has set aside for it."""

    phase: str = ""
    conditions: list[Condition] | None = None
    nominated_node_name: str = ""
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities | None = None
