"""The parts of a Pod and of a CapacityRequest that the pod controller reads."""

from __future__ import annotations

from typing import Any

import msgspec

from bigfleet.controllers.podspec.objects import PodSpec, PodStatus

POD_UID_LABEL = "bigfleet.lucy.sh/pod-uid"
INTERRUPTION_PENALTY = "bigfleet.lucy.sh/interruption-penalty"
RECLAMATION_PENALTY = "bigfleet.lucy.sh/reclamation-penalty"


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
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None


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
