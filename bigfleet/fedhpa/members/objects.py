"""The parts of HPAs, workloads and Pods in members that the controllers read."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from bigfleet.fedhpa.objects import Metadata
from bigfleet.fedhpa.shares import Share

# On each managed HPA, workload and Pod. Pods have their own label, because a Deployment's
# ReplicaSets get the labels of its Pods, and must not count as federated ones.
AUTOSCALER_LABEL = "bigfleet.lucy.sh/federated-autoscaler"
WORKLOAD_LABEL = "bigfleet.lucy.sh/federated-workload"
POD_LABEL = "bigfleet.lucy.sh/federated-pod"
# On each managed object: the hash of what was last applied.
SPEC_HASH = "bigfleet.lucy.sh/spec-hash"
# On an HPA: when its share was last increased for its need; the capacity limit of its cluster.
LAST_INCREASE = "bigfleet.lucy.sh/last-share-increase"
CAPACITY_LIMIT = "bigfleet.lucy.sh/capacity-limit"

HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
MEMBER_KINDS = {"federateddeployments": "Deployment", "federatedreplicasets": "ReplicaSet"}
MEMBER_PLURALS = {"Deployment": "deployments", "ReplicaSet": "replicasets"}


def spec_hash(content: Any) -> str:
    """The value of SPEC_HASH: a short hash of `content`."""
    return blake2b(msgspec.json.encode(content, order="deterministic"), digest_size=8).hexdigest()


class NamespacedName(NamedTuple):
    """A namespaced name."""

    namespace: str
    name: str


class WorkloadName(NamedTuple):
    """A Deployment or ReplicaSet."""

    kind: str
    namespace: str
    name: str

    @property
    def path(self) -> str:
        plural = MEMBER_PLURALS[self.kind]
        return f"/apis/apps/v1/namespaces/{self.namespace}/{plural}/{self.name}"

    @property
    def label(self) -> str:
        """The value of WORKLOAD_LABEL on it, and of POD_LABEL on its Pods."""
        return f"{self.kind.lower()}.{self.name}"


def hpa_path(name: NamespacedName) -> str:
    """The API path of the HPA."""
    return f"/apis/autoscaling/v2/namespaces/{name.namespace}/horizontalpodautoscalers/{name.name}"


class HpaSpec(msgspec.Struct, rename="camel"):
    """An HPA's spec; metrics are parsed on demand."""

    max_replicas: int
    min_replicas: int = 1
    scale_target_ref: msgspec.Raw = msgspec.Raw(b"null")
    metrics: msgspec.Raw = msgspec.Raw(b"null")
    behavior: msgspec.Raw = msgspec.Raw(b"null")


class HpaCondition(msgspec.Struct, rename="camel"):
    """A condition of an HPA."""

    type: str
    status: str
    reason: str = ""
    last_transition_time: str = ""


class HpaStatus(msgspec.Struct, rename="camel"):
    """An HPA's status."""

    current_replicas: int = 0
    desired_replicas: int = 0
    current_metrics: msgspec.Raw = msgspec.Raw(b"null")
    conditions: list[HpaCondition] | None = None


class Hpa(msgspec.Struct):
    """A managed HorizontalPodAutoscaler."""

    metadata: Metadata
    spec: HpaSpec
    status: HpaStatus = msgspec.field(default_factory=HpaStatus)

    @property
    def name(self) -> NamespacedName:
        return NamespacedName(self.metadata.namespace, self.metadata.name)

    @property
    def share(self) -> Share:
        return Share(self.spec.min_replicas, self.spec.max_replicas)

    @property
    def last_applied(self) -> tuple[bytes, bytes, bytes]:
        """The parts of its spec that are the same in all clusters."""
        spec = self.spec
        return bytes(spec.scale_target_ref), bytes(spec.metrics), bytes(spec.behavior)


class MemberWorkloadStatus(msgspec.Struct, rename="camel"):
    """A Deployment's or ReplicaSet's counts."""

    replicas: int = 0
    ready_replicas: int = 0


class MemberWorkload(msgspec.Struct):
    """A managed Deployment or ReplicaSet."""

    metadata: Metadata
    spec: dict[str, Any]
    status: MemberWorkloadStatus = msgspec.field(default_factory=MemberWorkloadStatus)

    @property
    def replicas(self) -> int:
        """The replicas in its spec."""
        return int(self.spec.get("replicas", 1))


class Pod(msgspec.Struct):
    """A managed Pod that has no node yet."""

    metadata: Metadata
