"""Claims, volumes and storage classes, and how they constrain where a Pod can run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from bigfleet.controllers.pod_controller.pods import Pod
from bigfleet.controllers.podspec.node_requirements import RequirementBody, TermBody, term_body
from bigfleet.controllers.podspec.unsupported import Unsupported
from bigfleet.kube.pod_types import LabelSelector, NodeSelector, Quantities, ResourceRequirements
from bigfleet.model.labels import REGION_LABEL, ZONE_LABEL

# Labels of storage drivers for zones and regions; a new machine has the general labels only.
_TOPOLOGY_LABEL_ALIASES = {
    "failure-domain.beta.kubernetes.io/zone": ZONE_LABEL,
    "failure-domain.beta.kubernetes.io/region": REGION_LABEL,
    "topology.ebs.csi.aws.com/zone": ZONE_LABEL,
    "topology.disk.csi.azure.com/zone": ZONE_LABEL,
    "topology.gke.io/zone": ZONE_LABEL,
}
# Separates zones in a volume's label.
_SEPARATOR = "__"
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


class _Struct(msgspec.Struct, rename="camel"):
    pass


class _Metadata(_Struct):
    name: str
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str = ""


class _ClaimSpec(_Struct):
    volume_name: str = ""
    storage_class_name: str = ""
    volume_mode: str = ""
    access_modes: list[str] | None = None
    selector: LabelSelector | None = None
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)


class Claim(_Struct):
    """A PersistentVolumeClaim."""

    metadata: _Metadata
    spec: _ClaimSpec

    @property
    def storage_class(self) -> str:
        """The name of its class, "" for none."""
        named = (self.metadata.annotations or {}).get(_CLASS_ANNOTATION)
        return self.spec.storage_class_name if named is None else named


class _VolumeAffinity(_Struct):
    required: NodeSelector | None = None


class _ClaimRef(_Struct):
    name: str = ""
    namespace: str = ""


class _VolumeSpec(_Struct):
    node_affinity: _VolumeAffinity | None = None
    claim_ref: _ClaimRef = msgspec.field(default_factory=_ClaimRef)
    storage_class_name: str = ""
    volume_mode: str = ""
    access_modes: list[str] | None = None
    capacity: Quantities | None = None


class _VolumeStatus(_Struct):
    phase: str = ""


class Volume(_Struct):
    """A PersistentVolume."""

    metadata: _Metadata
    spec: _VolumeSpec
    status: _VolumeStatus = msgspec.field(default_factory=_VolumeStatus)


class _LabelValues(_Struct):
    key: str
    values: list[str]


class _Topology(_Struct):
    match_label_expressions: list[_LabelValues] | None = None


class StorageClass(_Struct):
    """A StorageClass."""

    metadata: _Metadata
    provisioner: str = ""
    volume_binding_mode: str = ""
    allowed_topologies: list[_Topology] | None = None


# A machine must meet one term of each.
Choices = list[Sequence[TermBody]]
ClaimKey = tuple[str, str]


def claims_of(pod: Pod) -> Iterator[ClaimKey]:
    """The claims of the Pod's volumes."""
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield pod.metadata.namespace, volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            yield pod.metadata.namespace, f"{pod.metadata.name}-{volume.name}"


def volume_choices(volume: Volume) -> Choices:
    """Where the volume can be reached; Unsupported for a volume local to a Node."""
    found: Choices = []
    for key, value in sorted((volume.metadata.labels or {}).items()):
        if _TOPOLOGY_LABEL_ALIASES.get(key, key) in (ZONE_LABEL, REGION_LABEL):
            found.append([[_one_of(key, value.split(_SEPARATOR))]])
    affinity = volume.spec.node_affinity
    if affinity is not None and affinity.required is not None:
        terms = affinity.required.node_selector_terms or ()
        usable = [c for term in terms if (c := term_body(term)) is not None]
        if not usable:
            why = f"include {volume.metadata.name}, which is local to a Node"
            raise Unsupported("volumes", f"{why}: no new machine can reach it")
        found.append([[_canonical(requirement) for requirement in term] for term in usable])
    return found


def class_choices(storage_class: StorageClass) -> Choices:
    """Where the class may provision a volume."""
    terms = [
        [_one_of(each.key, each.values) for each in topology.match_label_expressions or ()]
        for topology in storage_class.allowed_topologies or ()
    ]
    return [terms] if terms else []


def _one_of(key: str, values: Sequence[str]) -> RequirementBody:
    return _canonical({"key": key, "operator": "In", "values": list(values)})


def _canonical(requirement: RequirementBody) -> RequirementBody:
    key = requirement["key"]
    return {**requirement, "key": _TOPOLOGY_LABEL_ALIASES.get(key, key)}
