"""Cluster API's objects from and to BigFleet's machines. Pure.

Machine, infrastructure machine and bootstrap config of one BigFleet machine all have its id as
their name, so that a machine cannot exist twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from bigfleet.api.wellknown import MACHINE_LABEL, OUR_DOMAIN
from bigfleet.kube.client import CONFLICT, FORBIDDEN, GONE, NOT_FOUND, ApiError
from bigfleet.kube.pod_types import Condition
from bigfleet.services.provider.capi.catalog import ClusterEntry, Offering, TemplateRef
from bigfleet.services.provider.lifecycle import Record

GROUP, VERSION = "cluster.x-k8s.io", "v1beta2"
PROVIDER_LABEL = f"{OUR_DOMAIN}/provider"
OPERATION = f"{OUR_DOMAIN}/operation"
_CLUSTER_LABEL = f"{GROUP}/cluster-name"
_CLONED_FROM_NAME, _CLONED_FROM_KIND = f"{GROUP}/cloned-from-name", f"{GROUP}/cloned-from-groupkind"
# Of the grace periods of drains, the longest: it bounds the deletion by somebody else, too.
_DRAIN_SECONDS = 600
# The conditions that tell why a Machine does not get on, and their status while it does.
_HEALTHY = {
    "BootstrapConfigReady": "True",
    "InfrastructureReady": "True",
    "NodeReady": "True",
    "Deleting": "False",
}
UNAUTHORIZED, _UNPROCESSABLE = 401, 422
_HINTS = {
    UNAUTHORIZED: "the management cluster does not accept the provider's credential; renew it",
    FORBIDDEN: "give the provider the Role of docs/guides/cluster-api.md",
    NOT_FOUND: "apply it in the provider's namespace, and its CustomResourceDefinition before",
    CONFLICT: "somebody else has changed or made it meanwhile",
    GONE: "it was answered from a state that the management cluster no longer has",
    _UNPROCESSABLE: "the management cluster rejects it; correct the template or the offering",
}


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class Owned(msgspec.Struct):
    """An object that may be this provider's."""

    metadata: _Metadata

    def is_of(self, provider_name: str) -> bool:
        """Whether the provider of that name has made it."""
        return (self.metadata.labels or {}).get(PROVIDER_LABEL) == provider_name

    @property
    def operation_id(self) -> str:
        """The operation that it was made for."""
        return (self.metadata.annotations or {}).get(OPERATION, "")

    @property
    def leaving(self) -> bool:
        """Whether it is being deleted."""
        return self.metadata.deletion_timestamp is not None


class _NodeRef(msgspec.Struct):
    name: str = ""


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    node_ref: _NodeRef = msgspec.field(default_factory=_NodeRef)
    conditions: list[Condition] | None = None


class MachineView(Owned):
    """What is read of a Machine."""

    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def ready(self) -> bool:
        """Whether its Node exists and is Ready."""
        return any(each.status == "True" for each in self._conditions("NodeReady"))

    @property
    def failure(self) -> str:
        """Why it will never serve; "" while it may."""
        if self.status.phase == "Failed":
            return self.story
        if any(each.reason == "Deleted" for each in self._conditions("InfrastructureReady")):
            return f"its infrastructure is gone: {self.story}"
        node = self.status.node_ref.name
        if node and node != self.metadata.name:
            return (
                f"its Node is called {node}, and must be called {self.metadata.name}: the bootstrap"
                " data has to set the name"
            )
        return ""

    @property
    def story(self) -> str:
        """Its phase, and what it waits for, as Cluster API says it."""
        waits = [
            f"{each.type}: {' '.join((each.message or each.reason).split())}"
            for each in self.status.conditions or ()
            if each.status != _HEALTHY.get(each.type, each.status)
        ]
        return "; ".join([f"Machine in phase {self.status.phase or 'Pending'}", *waits])

    def _conditions(self, kind: str) -> Iterator[Condition]:
        return (each for each in self.status.conditions or () if each.type == kind)


def collection(namespace: str, api_version: str, kind: str) -> str:
    """The API path of the kind's objects."""
    return f"/apis/{api_version}/namespaces/{namespace}/{kind.lower()}s"


def machines(namespace: str) -> str:
    """The API path of all Machines."""
    return collection(namespace, f"{GROUP}/{VERSION}", "Machine")


def made_from(template: TemplateRef, namespace: str) -> str:
    """The API path of what is made from the template."""
    return collection(namespace, template.api_version, template.made_kind)


def bootstrap_secret(machine_id: str) -> str:
    """The name of the Secret with the machine's bootstrap data."""
    return f"bigfleet-bootstrap-{machine_id}"


def _metadata(name: str, record: Record, provider_name: str, cluster: str) -> dict[str, Any]:
    labels = {
        PROVIDER_LABEL: provider_name,
        MACHINE_LABEL: record.machine.id,
        _CLUSTER_LABEL: cluster,
    }
    return {"name": name, "labels": labels, "annotations": {OPERATION: record.operation_id}}


def clone(
    template: Mapping[str, Any],
    ref: TemplateRef,
    record: Record,
    provider_name: str,
    cluster: str,
) -> dict[str, Any]:
    """What `ref` makes for the machine, as Cluster API's own controllers would make it."""
    inner = template.get("spec", {}).get("template", {})
    given = inner.get("metadata") or {}
    metadata = _metadata(record.machine.id, record, provider_name, cluster)
    metadata["labels"] = {**(given.get("labels") or {}), **metadata["labels"]}
    metadata["annotations"] = {
        **(given.get("annotations") or {}),
        **metadata["annotations"],
        _CLONED_FROM_NAME: ref.name,
        _CLONED_FROM_KIND: f"{ref.kind}.{ref.group}",
    }
    head = {"apiVersion": ref.api_version, "kind": ref.made_kind, "metadata": metadata}
    return {**head, "spec": inner.get("spec") or {}}


def secret(record: Record, provider_name: str, cluster: str, data: Mapping[str, str]) -> Any:
    """The Secret with the machine's bootstrap data, as the contract of bootstrap providers says."""
    name = bootstrap_secret(record.machine.id)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": f"{GROUP}/secret",
        "metadata": _metadata(name, record, provider_name, cluster),
        "stringData": data,
    }


def machine_of(
    record: Record, offering: Offering, entry: ClusterEntry, provider_name: str
) -> dict[str, Any]:
    """The Machine for the record's operation. It has the labels of the BigFleet machine, too, some
    of which Cluster API copies to the Node.
    """
    machine_id = record.machine.id
    metadata = _metadata(machine_id, record, provider_name, entry.name)
    metadata["labels"] = {**record.machine.labels, **metadata["labels"]}
    bootstrap: dict[str, Any] = {"dataSecretName": bootstrap_secret(machine_id)}
    if entry.bootstrap_template:
        bootstrap = {"configRef": _reference(entry.bootstrap_template, machine_id)}
    spec: dict[str, Any] = {
        "clusterName": entry.name,
        "bootstrap": bootstrap,
        "infrastructureRef": _reference(offering.template, machine_id),
        "deletion": drain_timeouts(_DRAIN_SECONDS),
    }
    if entry.version:
        spec["version"] = entry.version
    if offering.failure_domain:
        spec["failureDomain"] = offering.failure_domain
    head = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Machine", "metadata": metadata}
    return {**head, "spec": spec}


def _reference(ref: TemplateRef, name: str) -> Mapping[str, str]:
    return {"apiGroup": ref.group, "kind": ref.made_kind, "name": name}


def drain_timeouts(seconds: float) -> Mapping[str, int]:
    """A Machine's `spec.deletion`: how long its pods and volumes may hold it; 0 means ever."""
    bound = max(1, int(seconds))
    return {"nodeDrainTimeoutSeconds": bound, "nodeVolumeDetachTimeoutSeconds": bound}


def explain(error: ApiError, doing: str) -> str:
    """Why an API server's answer kept the provider from `doing`, and what helps."""
    told = error.message or error.reason or "no reason given"
    return f"cannot {doing}: {told} ({_HINTS.get(error.status, f'HTTP status {error.status}')})"
