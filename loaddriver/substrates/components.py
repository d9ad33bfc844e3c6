"""The command line of each control plane component, and the files that it reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import yaml

from bigfleet.kube.client import KubeClient
from loaddriver.substrates import audit
from loaddriver.substrates.credentials import FRONT_PROXY, Credentials, FrontProxy
from loaddriver.substrates.ports import LOOPBACK

KWOK_STAGES = Path(__file__).with_name("manifests") / "kwok-stages.yaml"

# kwok plays every Node that has the annotation and any label at all (one without labels it
# overlooks), until the Node gets the label below: then the API server reports it as gone from
# kwok's watch, and its lease is renewed no more. Taking the annotation away would not do: kwok
# asks for annotations itself, and drops the very event that tells it to let go.
FAKE_NODE_ANNOTATION = ("kwok.x-k8s.io/node", "fake")
HEARTBEAT_STOPPED_LABEL = ("bigfleet.lucy.sh/heartbeat", "stopped")
# The condition by which network agents say that a Node has its network, by saying "False".
NO_NETWORK = "NetworkUnavailable"

# Those that a workload of Deployments, StatefulSets and Jobs, and a cluster's own DaemonSets, on
# Nodes that come and go need.
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
# HPAs look as often as they can, so that a run of minutes shows what else takes an hour. Whoever
# wants an HPA to wait says so in its `behavior`.
_HPA_FLAGS = (
    "--horizontal-pod-autoscaler-sync-period=2s",
    "--horizontal-pod-autoscaler-downscale-stabilization=5s",
    "--horizontal-pod-autoscaler-cpu-initialization-period=0s",
    "--horizontal-pod-autoscaler-initial-readiness-delay=0s",
)
# Far above what one machine serves, so that clients are limited by the server, not by themselves.
_CLIENT_QUERIES_PER_SECOND = 500
_CLIENT_BURST = 1000
# Two thousand reads and one thousand writes at once: the server shall be limited by its cores.
_READS_INFLIGHT = 2000
_WRITES_INFLIGHT = 1000
_NODE_LEASE_SECONDS = 40


class Binaries(Protocol):
    """Where the real binaries are, and which versions they have by component name."""

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
    """What a run may choose of its control planes, wherever they run.

    `gc_percent` is Go's GOGC: more memory for less CPU time. `node_monitor_grace_seconds` is how
    long a Node may be silent before it counts as lost (Kubernetes' default is 50), and every
    `node_monitor_seconds` somebody looks: only then the taints of one that became Ready go.
    With `network_agents` somebody says of each Node when it has its network, by the condition
    NetworkUnavailable, and only then is it Ready (on the local substrate). With
    `resource_metrics` there are HPAs, and a metrics-server that tells them what Pods use.
    `extra_controllers` run beside those that every run has. `before_controllers` is done as an
    administrator once the API server answers: the garbage collector takes half a minute to notice
    a kind of objects that came after it.
    """

    gc_percent: int = 200
    node_monitor_grace_seconds: int = 50
    node_monitor_seconds: int = 5
    network_agents: bool = False
    resource_metrics: bool = False
    extra_controllers: tuple[str, ...] = ()
    before_controllers: Callable[[KubeClient], Awaitable[None]] | None = None
    start_deadline_seconds: float = 90.0


@dataclass(frozen=True)
class Layout:
    """Files and ports of one cluster. Sockets and secrets lie in `data`, logs in `logs`."""

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


def etcd(binaries: Binaries, layout: Layout) -> list[str]:
    """Listens on sockets in the run's own directory: no port, and no other user gets at it."""
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
    """RBAC as in production; tokens from a file; service account tokens on request."""
    return [
        str(binaries.kube_apiserver),
        f"--etcd-servers=unix://{layout.etcd_socket}",
        *serving(layout.api_server_port, credentials),
        f"--advertise-address={LOOPBACK}",
        # Nothing here reaches the server through the `kubernetes` Service.
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=Node,RBAC",
        "--anonymous-auth=false",
        # Nobody has a client certificate. Named all the same, because the server publishes it and
        # the other components wait for what is published.
        f"--client-ca-file={credentials.ca_certificate}",
        *_aggregation(credentials.front_proxy),
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={credentials.service_account_public_key}",
        f"--service-account-signing-key-file={credentials.service_account_private_key}",
        *api_server_flags(credentials.token_file, layout.audit_policy, layout.audit_log),
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
    """Each controller writes as itself, so that the audit log says which one it was."""
    kubeconfig = credentials.kubeconfigs["kube-controller-manager"]
    return [
        str(binaries.kube_controller_manager),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        *serving(layout.controller_manager_port, credentials),
        *controller_manager_flags(CONTROLLERS, settings),
        *(_HPA_FLAGS if settings.resource_metrics else ()),
    ]


def kube_scheduler(binaries: Binaries, layout: Layout, credentials: Credentials) -> list[str]:
    """Stock but for its client limits and for filling Nodes up instead of spreading."""
    kubeconfig = credentials.kubeconfigs["kube-scheduler"]
    return [
        str(binaries.kube_scheduler),
        f"--config={layout.scheduler_configuration}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        *serving(layout.scheduler_port, credentials),
    ]


def kwok(binaries: Binaries, layout: Layout, credentials: Credentials) -> list[str]:
    """Plays the kubelet of annotated Nodes; serves nothing, so it needs no port."""
    return [str(binaries.kwok), *kwok_flags(credentials.kubeconfigs["kwok"], layout.kwok_stages)]


def api_server_flags(token_file: Path, audit_policy: Path, audit_log: Path) -> list[str]:
    """What every kube-apiserver of a run is told, wherever it runs; paths as it sees them."""
    return [
        f"--token-auth-file={token_file}",
        f"--max-requests-inflight={_READS_INFLIGHT}",
        f"--max-mutating-requests-inflight={_WRITES_INFLIGHT}",
        *audit.flags(audit_policy, audit_log),
    ]


def controller_manager_flags(controllers: Sequence[str], settings: ControlPlaneConfig) -> list[str]:
    """What every kube-controller-manager of a run is told, wherever it runs."""
    more = [*settings.extra_controllers, *([_HPA_CONTROLLER] if settings.resource_metrics else [])]
    return [
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--controllers={','.join([*controllers, *more])}",
        f"--kube-api-qps={_CLIENT_QUERIES_PER_SECOND}",
        f"--kube-api-burst={_CLIENT_BURST}",
        f"--node-monitor-grace-period={settings.node_monitor_grace_seconds}s",
        f"--node-monitor-period={settings.node_monitor_seconds}s",
    ]


def kwok_flags(kubeconfig: Path, stages: Path) -> list[str]:
    """What every kwok of a run is told, wherever it runs; paths as it sees them."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--config={stages}",
        f"--manage-nodes-with-annotation-selector={'='.join(FAKE_NODE_ANNOTATION)}",
        f"--manage-nodes-with-label-selector={'!='.join(HEARTBEAT_STOPPED_LABEL)}",
        f"--node-lease-duration-seconds={_NODE_LEASE_SECONDS}",
        "--cidr=10.128.0.0/9",
    ]


def write_scheduler_configuration(path: Path, kubeconfig: Path) -> None:
    """Write the scheduler's configuration: its own defaults, at a rate that its client allows.

    Scoring stays as it ships. Packing nodes full would be kinder to scale-down, but it fills one
    rack to the last slot before the next, and gangs that began there then hang.
    """
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": str(kubeconfig),
            "qps": _CLIENT_QUERIES_PER_SECOND,
            "burst": _CLIENT_BURST,
        },
        "leaderElection": {"leaderElect": False},
    }
    path.write_text(yaml.safe_dump(configuration, sort_keys=False))


def serving(port: int, credentials: Credentials) -> list[str]:
    """How a component of Kubernetes' own listens on loopback."""
    return [
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        "--permit-port-sharing=true",
        f"--tls-cert-file={credentials.serving_certificate}",
        f"--tls-private-key-file={credentials.serving_key}",
    ]
