"""Command lines and configuration files of the control plane components."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import yaml

from bigfleet.kube.client import KubeClient
from loaddriver.substrates import audit
from loaddriver.substrates.credentials import FRONT_PROXY, Credentials, FrontProxy
from loaddriver.substrates.ports import LOOPBACK

KWOK_STAGES = Path(__file__).with_name("manifests") / "kwok-stages.yaml"
KWOK_METRICS = KWOK_STAGES.with_name("kwok-metrics.yaml")

# kwok simulates every Node that has the annotation and at least one label, until the Node gets the
# label below: then it leaves kwok's watch, and its lease is no longer renewed. Removing the
# annotation does not work: kwok filters by annotation itself and drops the event.
FAKE_NODE_ANNOTATION = ("kwok.x-k8s.io/node", "fake")
HEARTBEAT_STOPPED_LABEL = ("bigfleet.lucy.sh/heartbeat", "stopped")
# The condition that network agents set to "False" once a Node has its network.
NO_NETWORK = "NetworkUnavailable"

# The controllers needed for Deployments, StatefulSets, Jobs and DaemonSets on a changing set of
# Nodes.
CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "job-controller",
    "daemonset-controller",
    "ttl-after-finished-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "node-lifecycle-controller",
    "taint-eviction-controller",
    "pod-garbage-collector-controller",
)
_HPA_CONTROLLER = "horizontal-pod-autoscaler-controller"
# HPAs sync as often as possible, so that a run takes minutes instead of an hour. An HPA's own
# `behavior` still applies.
_HPA_FLAGS = (
    "--horizontal-pod-autoscaler-sync-period=2s",
    "--horizontal-pod-autoscaler-downscale-stabilization=5s",
    "--horizontal-pod-autoscaler-cpu-initialization-period=0s",
    "--horizontal-pod-autoscaler-initial-readiness-delay=0s",
)
# Far above what one machine serves, so that the server is the limit, not its clients.
_CLIENT_QUERIES_PER_SECOND = 500
_CLIENT_BURST = 1000
# 2000 reads and 1000 writes in flight: the server is to be limited by its cores.
_READS_INFLIGHT = 2000
_WRITES_INFLIGHT = 1000
_NODE_LEASE_SECONDS = 40


class Binaries(Protocol):
    """Paths of the real binaries, and their versions by component name."""

    @property
    def kube_apiserver(self) -> Path: ...
    @property
    def kube_controller_manager(self) -> Path: ...
    @property
    def kube_scheduler(self) -> Path: ...
    @property
    def etcd(self) -> Path: ...
    @property
    def kwok(self) -> Path: ...
    @property
    def metrics_server(self) -> Path | None: ...
    @property
    def versions(self) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class ControlPlaneConfig:
    """The settings of a run's control planes, on any substrate.

    `gc_percent` is Go's GOGC: more memory for less CPU time. An API server with `api_server_mib`,
    Go's GOMEMLIMIT, has its garbage collected when it is that large instead.
    `node_monitor_grace_seconds` is how long a Node may be silent before it counts as lost
    (Kubernetes' default is 50); it is checked every `node_monitor_seconds`, which also removes the
    taints of Nodes that became Ready. With `network_agents` a Node is Ready only once its condition
    NetworkUnavailable is "False" (on the local substrate). With `resource_metrics` there are HPAs
    and a metrics-server. `extra_controllers` run in addition to the default ones.
    `before_controllers` is called as an administrator once the API server responds: the garbage
    collector takes half a minute to notice a resource that was added after its start.
    `scheduler_config` is a KubeSchedulerConfiguration to use instead of the defaults.
    """

    gc_percent: int = 200
    api_server_mib: int | None = None
    node_monitor_grace_seconds: int = 50
    node_monitor_seconds: int = 5
    network_agents: bool = False
    resource_metrics: bool = False
    extra_controllers: tuple[str, ...] = ()
    before_controllers: Callable[[KubeClient], Awaitable[None]] | None = None
    start_deadline_seconds: float = 90.0
    scheduler_config: Path | None = None


@dataclass(frozen=True)
class Layout:
    """Files and ports of a cluster. Sockets and secrets are in `data`, logs in `logs`."""

    data: Path
    logs: Path
    api_server_port: int
    controller_manager_port: int
    scheduler_port: int
    metrics_server_port: int = 0
    kubelet_port: int = 0

    @property
    def api_server(self) -> str:
        return f"https://{LOOPBACK}:{self.api_server_port}"

    @property
    def etcd_socket(self) -> Path:
        return self.data / "etcd.sock"

    @property
    def etcd_peer_socket(self) -> Path:
        return self.data / "peer.sock"

    @property
    def audit_log(self) -> Path:
        return self.logs / "audit.log"

    @property
    def audit_policy(self) -> Path:
        return self.data / "audit-policy.yaml"

    @property
    def scheduler_configuration(self) -> Path:
        return self.data / "scheduler.yaml"

    @property
    def kwok_stages(self) -> Path:
        return self.data / KWOK_STAGES.name

    @property
    def kwok_metrics(self) -> Path:
        return KWOK_METRICS


def etcd(binaries: Binaries, layout: Layout) -> list[str]:
    """etcd, which listens on sockets in the run's directory: no ports, no access by other users."""
    client, peer = f"unix://{layout.etcd_socket}", f"unix://{layout.etcd_peer_socket}"
    return [
        str(binaries.etcd),
        "--name=etcd",
        f"--data-dir={layout.data / 'etcd'}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=etcd={peer}",
        "--log-level=warn",
    ]


def kube_apiserver(binaries: Binaries, layout: Layout, credentials: Credentials) -> list[str]:
    """kube-apiserver with RBAC, tokens from a file, and service account tokens on request."""
    return [
        str(binaries.kube_apiserver),
        f"--etcd-servers=unix://{layout.etcd_socket}",
        *serving(layout.api_server_port, credentials),
        f"--advertise-address={LOOPBACK}",
        # Nothing uses the `kubernetes` Service to reach the server.
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=Node,RBAC",
        "--anonymous-auth=false",
        # No client has a certificate. Set because the server publishes it and
        # the other components wait for that.
        f"--client-ca-file={credentials.ca_certificate}",
        *_aggregation(credentials.front_proxy),
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={credentials.service_account_public_key}",
        f"--service-account-signing-key-file={credentials.service_account_private_key}",
        f"--token-auth-file={credentials.token_file}",
        f"--max-requests-inflight={_READS_INFLIGHT}",
        f"--max-mutating-requests-inflight={_WRITES_INFLIGHT}",
        *audit.flags(layout.audit_policy, layout.audit_log),
    ]


def _aggregation(front_proxy: FrontProxy) -> list[str]:
    return [
        f"--requestheader-client-ca-file={front_proxy.ca_certificate}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={front_proxy.certificate}",
        f"--proxy-client-key-file={front_proxy.key}",
    ]


def kube_controller_manager(
    binaries: Binaries, layout: Layout, credentials: Credentials, settings: ControlPlaneConfig
) -> list[str]:
    """kube-controller-manager; each controller has its own identity in the audit log."""
    kubeconfig = credentials.kubeconfigs["kube-controller-manager"]
    more = [*settings.extra_controllers, *([_HPA_CONTROLLER] if settings.resource_metrics else [])]
    return [
        str(binaries.kube_controller_manager),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        *serving(layout.controller_manager_port, credentials),
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--controllers={','.join([*CONTROLLERS, *more])}",
        f"--kube-api-qps={_CLIENT_QUERIES_PER_SECOND}",
        f"--kube-api-burst={_CLIENT_BURST}",
        f"--node-monitor-grace-period={settings.node_monitor_grace_seconds}s",
        f"--node-monitor-period={settings.node_monitor_seconds}s",
        *(_HPA_FLAGS if settings.resource_metrics else ()),
    ]


def kube_scheduler(binaries: Binaries, layout: Layout, credentials: Credentials) -> list[str]:
    """kube-scheduler, as configured by `write_scheduler_configuration`."""
    kubeconfig = credentials.kubeconfigs["kube-scheduler"]
    return [
        str(binaries.kube_scheduler),
        f"--config={layout.scheduler_configuration}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        *serving(layout.scheduler_port, credentials),
    ]


def kwok(binaries: Binaries, layout: Layout, credentials: Credentials) -> list[str]:
    """kwok, which simulates the kubelet of annotated Nodes; it needs no port."""
    return [str(binaries.kwok), *kwok_flags(credentials.kubeconfigs["kwok"], layout.kwok_stages)]


def kwok_flags(kubeconfig: Path, stages: Path) -> list[str]:
    """Common flags of kwok on all substrates; paths as it sees them."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--config={stages}",
        f"--manage-nodes-with-annotation-selector={'='.join(FAKE_NODE_ANNOTATION)}",
        f"--manage-nodes-with-label-selector={'!='.join(HEARTBEAT_STOPPED_LABEL)}",
        f"--node-lease-duration-seconds={_NODE_LEASE_SECONDS}",
        "--cidr=10.128.0.0/9",
    ]


def write_scheduler_configuration(path: Path, kubeconfig: Path, given: Path | None = None) -> None:
    """Write the scheduler's configuration: the defaults or `given`, with higher client limits where
    it has none.

    Scoring is the default. Packing nodes would ease scale-down, but it fills one rack before the
    next, and gangs that started there get stuck.
    """
    theirs = {} if given is None else yaml.safe_load(given.read_text())
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        **theirs,
        "clientConnection": {
            "qps": _CLIENT_QUERIES_PER_SECOND,
            "burst": _CLIENT_BURST,
            **theirs.get("clientConnection", {}),
            "kubeconfig": str(kubeconfig),
        },
        "leaderElection": {"leaderElect": False},
    }
    path.write_text(yaml.safe_dump(configuration, sort_keys=False))


def serving(port: int, credentials: Credentials) -> list[str]:
    """Serving flags of a Kubernetes component on loopback."""
    return [
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        "--permit-port-sharing=true",
        f"--tls-cert-file={credentials.serving_certificate}",
        f"--tls-private-key-file={credentials.serving_key}",
    ]
