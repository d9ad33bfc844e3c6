"""The objects of a role in its cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loaddriver.substrates.applying import Manifest
from loaddriver.substrates.kind.layout import ROLE_NAMESPACE

# The label of a pod's component in reports.
COMPONENT_ANNOTATION = "scaletest.bigfleet/component"

_ON_REAL_NODE: Mapping[str, Any] = {
    "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
    "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}],
}
# As the `restricted` level of Pod Security wants it.
_POD_SECURITY = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
_CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
# No CPU limit: throttling would appear as BigFleet's own latency.
_RESOURCES = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "2Gi"}}
_GRACE_SECONDS = 5
_START_ATTEMPTS = 90


@dataclass(frozen=True)
class Port:
    """A port of a role: `container` is where it listens, `node` where its node passes it on."""

    name: str
    container: int
    node: int


@dataclass(frozen=True)
class FileMount:
    """Part of a claim (`claim`, `sub_path`) or a whole Secret or ConfigMap, seen at `path`."""

    path: str
    claim: str = ""
    sub_path: str = ""
    secret: str = ""
    config_map: str = ""
    read_only: bool = True

    @property
    def volume(self) -> dict[str, Any]:
        """The pod's volume that it comes from; mounts of one claim share theirs."""
        if self.secret:
            return {"name": self.secret, "secret": {"secretName": self.secret}}
        if self.config_map:
            return {"name": self.config_map, "configMap": {"name": self.config_map}}
        return {"name": self.claim, "persistentVolumeClaim": {"claimName": self.claim}}


@dataclass(frozen=True)
class Workload:
    """One container that runs for ever, alone in its pod.

    `keeps_state` makes a StatefulSet of it instead of a Deployment. `api_account` is the
    ServiceAccount, which exists already, as which it uses the API; without, it gets one of its
    own that has no token. `probed` is the port that serves /readyz and /healthz.
    """

    name: str
    component: str
    image: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    namespace: str = ROLE_NAMESPACE
    command: Sequence[str] = ()
    ports: Sequence[Port] = ()
    probed: str | None = None
    api_account: str | None = None
    mounts: Sequence[FileMount] = field(default_factory=tuple)
    keeps_state: bool = False


def workload_objects(workload: Workload) -> Iterator[Manifest]:
    """The workload's objects, in order of application."""
    if workload.api_account is None:
        yield service_account(workload)
    if workload.ports:
        yield service(workload)
    kind = "StatefulSet" if workload.keeps_state else "Deployment"
    spec: dict[str, Any] = {
        "replicas": 1,
        "selector": {"matchLabels": _labels(workload)},
        "template": pod_template(workload),
    }
    if workload.keeps_state:
        spec["serviceName"] = workload.name
    else:
        spec["strategy"] = {"type": "Recreate"}
    yield {"apiVersion": "apps/v1", "kind": kind, "metadata": _metadata(workload), "spec": spec}


def pod_template(workload: Workload) -> dict[str, Any]:
    """A pod on the cluster's one real node, without rights that it does not need."""
    annotations = {COMPONENT_ANNOTATION: workload.component}
    return {
        "metadata": {"labels": _labels(workload), "annotations": annotations},
        "spec": _pod_spec(workload),
    }


def _pod_spec(workload: Workload) -> dict[str, Any]:
    volumes = {mount.volume["name"]: mount.volume for mount in workload.mounts}
    return {
        "serviceAccountName": workload.api_account or workload.name,
        "automountServiceAccountToken": workload.api_account is not None,
        "enableServiceLinks": False,
        "securityContext": _POD_SECURITY,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        **_ON_REAL_NODE,
        "containers": [_container(workload)],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *volumes.values()],
    }


def _container(workload: Workload) -> dict[str, Any]:
    return {
        "name": workload.name,
        "image": workload.image,
        # Handed to the node by the harness; no registry could have it.
        "imagePullPolicy": "Never",
        **({"command": list(workload.command)} if workload.command else {}),
        "args": list(workload.arguments),
        "env": [{"name": name, "value": value} for name, value in workload.environment.items()],
        "ports": [{"name": port.name, "containerPort": port.container} for port in workload.ports],
        **_probes(workload),
        "resources": _RESOURCES,
        "securityContext": _CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            *(_volume_mount(mount) for mount in workload.mounts),
        ],
    }


def _volume_mount(mount: FileMount) -> dict[str, Any]:
    part = {"subPath": mount.sub_path} if mount.sub_path else {}
    return {
        "name": mount.volume["name"],
        "mountPath": mount.path,
        "readOnly": mount.read_only,
        **part,
    }


def _probes(workload: Workload) -> dict[str, Any]:
    """Liveness is slow to judge: a busy machine must not look like a dead role."""
    if workload.probed is None:
        return {}

    def ask(path: str, **timing: int) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": workload.probed}, "timeoutSeconds": 5, **timing}

    return {
        "startupProbe": ask("/readyz", periodSeconds=1, failureThreshold=_START_ATTEMPTS),
        "readinessProbe": ask("/readyz", periodSeconds=5, failureThreshold=3),
        "livenessProbe": ask("/healthz", periodSeconds=10, failureThreshold=6),
    }


def service_account(workload: Workload) -> Manifest:
    """A ServiceAccount without permissions."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(workload)}


def service(workload: Workload) -> Manifest:
    """Found by name from inside, at the node's own ports from outside; ready or not, as a local
    process is: who dials it finds out by itself.
    """
    ports = [
        {
            "name": port.name,
            "port": port.container,
            "targetPort": port.name,
            "nodePort": port.node,
        }
        for port in workload.ports
    ]
    spec = {
        "type": "NodePort",
        "publishNotReadyAddresses": True,
        "selector": _labels(workload),
        "ports": ports,
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(workload), "spec": spec}


def _metadata(workload: Workload) -> dict[str, Any]:
    return {
        "name": workload.name,
        "namespace": workload.namespace,
        "labels": _labels(workload),
    }


def _labels(workload: Workload) -> dict[str, str]:
    return {"app.kubernetes.io/name": workload.name}
