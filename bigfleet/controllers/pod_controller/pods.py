"""The parts of a Pod and of a CapacityRequest that the pod controller reads."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from bigfleet.api.install import GANG_MEMBERS
from bigfleet.kube.pod_types import Condition, PodSpec, PodStatus

INTERRUPTION_PENALTY = "bigfleet.lucy.sh/interruption-penalty"


class _Struct(msgspec.Struct, rename="camel"):
    pass


class Owner(_Struct):
    """An owner reference."""

    kind: str
    name: str
    controller: bool = False
    uid: str = ""


class Metadata(_Struct):
    """The parts of a Pod's metadata that the pod controller reads."""

    name: str
    namespace: str
    uid: str
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None
    labels: dict[str, str] | None = None
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None

    def slim(self, *, owners: bool = False) -> Metadata:
        """Only the fields that are kept for each Pod, to save memory."""
        members = (self.annotations or {}).get(GANG_MEMBERS)
        return Metadata(
            name=self.name,
            namespace=sys.intern(self.namespace),
            uid=self.uid,
            annotations={GANG_MEMBERS: members} if members is not None else None,
            owner_references=self.owner_references if owners else None,
        )


class Pod(_Struct):
    """The parts of a Pod that the pod controller reads."""

    metadata: Metadata
    spec: PodSpec
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def terminal(self) -> bool:
        """Whether it has terminated."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def unschedulable_message(self) -> str | None:
        """kube-scheduler's message when it is Unschedulable; else None."""
        if self.spec.node_name or self.status.phase != "Pending":
            return None
        for each in self.status.conditions or ():
            if each.type == "PodScheduled":
                unschedulable = each.status == "False" and each.reason == "Unschedulable"
                return each.message if unschedulable else None
        return None

    @property
    def workload(self) -> str:
        """Its namespace and controller, or its own name without one."""
        owners = self.metadata.owner_references or ()
        owner = next((o for o in owners if o.controller), None)
        name = f"{owner.kind}/{owner.name}" if owner else f"Pod/{self.metadata.name}"
        return f"{self.metadata.namespace}/{name}"


class RequestMetadata(_Struct):
    """A request's name, namespace and labels."""

    name: str
    namespace: str
    labels: dict[str, str] | None = None


class RequestStatus(_Struct):
    """A request's conditions."""

    conditions: list[Condition] | None = None


class ExistingRequest(_Struct):
    """A CapacityRequest in the cluster."""

    metadata: RequestMetadata
    spec: dict[str, Any]
    status: RequestStatus = msgspec.field(default_factory=RequestStatus)
