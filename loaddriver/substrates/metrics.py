"""Resource metrics in a cluster of simulated Nodes: usage of Pods, metrics-server, HPAs.

kwok serves each kubelet's metrics endpoint; the harness sets the CPU usage of Pods by
ClusterResourceUsages; metrics-server scrapes kwok, and the HPA controller queries metrics-server
through the API server.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

from bigfleet.api.install import apply, retry_until
from bigfleet.kube.client import ApiError, KubeClient
from bigfleet.kube.types import Conditioned
from loaddriver.substrates.applying import apply as apply_as_harness
from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.components import Binaries, Layout, serving
from loaddriver.substrates.credentials import Credentials
from loaddriver.substrates.ports import LOOPBACK

_MANIFESTS = Path(__file__).with_name("manifests")
_USAGES = "ClusterResourceUsage"
_API_SERVICE = "v1beta1.metrics.k8s.io"
_API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
# The minimum of metrics-server.
_RESOLUTION_SECONDS = 10


def kwok_flags(layout: Layout) -> list[str]:
    """Additional flags of kwok."""
    return [
        f"--config={layout.kwok_metrics}",
        f"--enable-crds={_USAGES}",
        f"--node-ip={LOOPBACK}",
        f"--node-port={layout.kubelet_port}",
        f"--server-address={LOOPBACK}:{layout.kubelet_port}",
    ]


def metrics_server(binaries: Binaries, layout: Layout, credentials: Credentials) -> list[str]:
    """metrics-server with a shorter interval. Raises SubstrateError if the binary is missing."""
    if binaries.metrics_server is None:
        raise SubstrateError(
            "resource metrics need metrics-server: run `python -m controlplane get --also "
            "metrics-server`, or put it beside the other given binaries"
        )
    kubeconfig = credentials.kubeconfigs["metrics-server"]
    return [
        str(binaries.metrics_server),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        *serving(layout.metrics_server_port, credentials),
        f"--metric-resolution={_RESOLUTION_SECONDS}s",
        "--kubelet-request-timeout=5s",
        "--kubelet-insecure-tls",
        "--kubelet-use-node-status-port",
        "--kubelet-preferred-address-types=InternalIP",
    ]


async def prepare(client: KubeClient) -> None:
    """Create the usage CRD and RBAC; `client` is a cluster administrator."""
    kind, *rest = yaml.safe_load_all((_MANIFESTS / "metrics.yaml").read_text())
    await apply(client, kind)
    await apply_as_harness(client, rest)
    await retry_until(lambda: _usages_served(client))


async def register(client: KubeClient, layout: Layout) -> None:
    """Register metrics-server as APIService."""
    manifest = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": _API_SERVICE},
        "spec": {
            "group": "metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {
                "name": "metrics-server",
                "namespace": "kube-system",
                "port": layout.metrics_server_port,
            },
        },
    }
    await apply_as_harness(client, [manifest])


async def is_available(client: KubeClient) -> bool:
    """Whether the API server reaches metrics-server."""
    content = await client.get(f"{_API_SERVICES}/{_API_SERVICE}")
    return msgspec.json.decode(content, type=Conditioned).is_true("Available")


async def _usages_served(client: KubeClient) -> bool:
    try:
        await client.get("/apis/kwok.x-k8s.io/v1alpha1/clusterresourceusages")
    except ApiError:
        return False
    return True
