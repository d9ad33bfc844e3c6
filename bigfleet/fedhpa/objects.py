"""The parts of the federated kinds that the controllers read, and their annotations."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from bigfleet.api.install import GROUP_VERSION
from bigfleet.fedhpa.shares import RebalanceConfig, ReplicaBounds, Share
from bigfleet.kube.pod_types import LabelSelector

API_VERSION = "bigfleet.lucy.sh/v1alpha1"
FIELD_MANAGER = "bigfleet-fedhpa"
FINALIZER = "bigfleet.lucy.sh/fedhpa"
# On the autoscaler: bounds for single clusters as JSON, where the spec cannot be changed.
PREFERENCES = "bigfleet.lucy.sh/hpa-preferences"
# On a federated workload: the autoscaler that scales it, and the clusters it must be in.
AUTOSCALED_BY = "bigfleet.lucy.sh/autoscaled-by"
CLUSTERS = "bigfleet.lucy.sh/clusters"

AUTOSCALERS = "federatedhorizontalpodautoscalers"
WORKLOADS = {
    "FederatedDeployment": "federateddeployments",
    "FederatedReplicaSet": "federatedreplicasets",
}


class ObjectKey(NamedTuple):
    """An object's plural, namespace and name."""

    plural: str
    namespace: str
    name: str

    @property
    def path(self) -> str:
        return f"{GROUP_VERSION}/namespaces/{self.namespace}/{self.plural}/{self.name}"


class Metadata(msgspec.Struct, rename="camel"):
    """What all objects have."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []


class ClusterSelection(msgspec.Struct):
    """Clusters by name, in order of preference, or by label; all if neither is set."""

    names: list[str] = []
    selector: LabelSelector = msgspec.field(default_factory=LabelSelector)


class Preference(msgspec.Struct, rename="camel"):
    """Bounds for one cluster, or with "*" for all others."""

    cluster: str
    min_replicas: int | None = None
    max_replicas: int | None = None


class Rebalance(msgspec.Struct, rename="camel"):
    """When and how far shares move; the defaults are the API's."""

    enabled: bool = True
    headroom_percent: int = 10
    stabilization_seconds: int = 120
    cooldown_seconds: int = 120
    scheduling_timeout_seconds: int = 180
    retry_seconds: int = 600
    idle_timeout_seconds: int = 600
    min_usage_percent: int = 30

    def config(self) -> RebalanceConfig:
        """Convert to the rules' settings."""
        return RebalanceConfig(
            enabled=self.enabled,
            headroom_percent=self.headroom_percent,
            stabilization_seconds=self.stabilization_seconds,
            cooldown_seconds=self.cooldown_seconds,
            scheduling_timeout_seconds=self.scheduling_timeout_seconds,
            retry_seconds=self.retry_seconds,
            idle_timeout_seconds=self.idle_timeout_seconds,
            min_usage_percent=self.min_usage_percent,
        )


class TargetRef(msgspec.Struct, rename="camel"):
    """The federated workload that is scaled."""

    kind: str
    name: str


class AutoscalerSpec(msgspec.Struct, rename="camel"):
    """The spec; `metrics` and `behavior` are passed to the members unchanged."""

    scale_target_ref: TargetRef
    max_replicas: int
    min_replicas: int = 1
    metrics: msgspec.Raw = msgspec.Raw(b"null")
    behavior: msgspec.Raw = msgspec.Raw(b"null")
    clusters: ClusterSelection = msgspec.field(default_factory=ClusterSelection)
    preferences: list[Preference] = []
    rebalance: Rebalance = msgspec.field(default_factory=Rebalance)

    @property
    def total(self) -> ReplicaBounds:
        return ReplicaBounds(self.min_replicas, self.max_replicas)


class Pending(msgspec.Struct, rename="camel"):
    """The intended share of a pending write; 0 and 0 for a removal."""

    min_replicas: int = 0
    max_replicas: int = 0


class ClusterStatus(msgspec.Struct, rename="camel", omit_defaults=True):
    """One cluster's entry in an autoscaler's status."""

    name: str
    state: str = ""
    min_replicas: int | None = None
    max_replicas: int | None = None
    current_replicas: int | None = None
    desired_replicas: int | None = None
    scheduled_replicas: int | None = None
    pending: Pending | None = None
    left_at: str | None = None
    last_move: dict[str, str] | None = None

    @property
    def share(self) -> Share | None:
        if self.min_replicas is None or self.max_replicas is None:
            return None
        return Share(self.min_replicas, self.max_replicas)


class Condition(msgspec.Struct, rename="camel"):
    """A condition."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str


class AutoscalerStatus(msgspec.Struct, rename="camel", omit_defaults=True):
    """The status; it also persists what is known of unreachable clusters."""

    observed_generation: int = 0
    current_replicas: int | None = None
    desired_replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    clusters_in_use: int | None = None
    conditions: list[Condition] = []
    clusters: list[ClusterStatus] = []


class Autoscaler(msgspec.Struct):
    """A FederatedHorizontalPodAutoscaler."""

    metadata: Metadata
    spec: AutoscalerSpec
    status: AutoscalerStatus = msgspec.field(default_factory=AutoscalerStatus)

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(AUTOSCALERS, self.metadata.namespace, self.metadata.name)

    @property
    def target(self) -> ObjectKey:
        ref = self.spec.scale_target_ref
        return ObjectKey(WORKLOADS[ref.kind], self.metadata.namespace, ref.name)


class WorkloadSpec(msgspec.Struct):
    """The spec; `template` is the object for each cluster."""

    template: dict[str, Any]
    replicas: int = 1
    clusters: ClusterSelection = msgspec.field(default_factory=ClusterSelection)
    preferences: list[Preference] = []


class WorkloadStatus(msgspec.Struct, rename="camel", omit_defaults=True):
    """The status over all clusters."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    conditions: list[Condition] = []
    clusters: list[dict[str, Any]] = []


class Workload(msgspec.Struct):
    """A FederatedDeployment or FederatedReplicaSet."""

    metadata: Metadata
    spec: WorkloadSpec
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)

    @property
    def autoscaled_by(self) -> str:
        """The autoscaler that scales it; "" when its own replicas count."""
        return self.metadata.annotations.get(AUTOSCALED_BY, "")

    @property
    def listed_clusters(self) -> list[str]:
        """The clusters that the autoscaler chose for it."""
        return [name for name in self.metadata.annotations.get(CLUSTERS, "").split(",") if name]
