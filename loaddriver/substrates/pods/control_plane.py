"""The command lines of a nested cluster's control plane: those of a local one, in a pod.

`python -m loaddriver.substrates.pods.control_plane` prints the chart's file control-plane.yaml.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import yaml

from loaddriver.substrates import components, metrics
from loaddriver.substrates.components import KWOK_METRICS, KWOK_STAGES, ControlPlaneConfig, Layout
from loaddriver.substrates.credentials import IDENTITIES, Credentials, FrontProxy
from loaddriver.substrates.ports import LOOPBACK

MOUNTED = Path("/credentials")
"""Where the pod has the Secret with all files of its control plane."""
API_SERVER_PORT, CONTROLLER_MANAGER_PORT, SCHEDULER_PORT, ETCD_METRICS_PORT = (
    6443,
    10257,
    10259,
    2381,
)
METRICS_SERVER_PORT, KUBELET_PORT = 4443, 10250
_EVERYWHERE = "0.0.0.0"
# Without a token, which these would have the API server review: reviews count as writes.
_METRICS_FOR_ALL = "--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics"
_HEADING = """\
# Printed by `python -m loaddriver.substrates.pods.control_plane`: the command lines with which the
# harness runs a control plane on one machine, with the paths and ports of a pod.
"""


class _PodLayout(Layout):
    """What a local control plane writes into its data is in the pod's Secret."""

    @property
    def audit_policy(self) -> Path:
        return MOUNTED / "audit-policy.yaml"

    @property
    def scheduler_configuration(self) -> Path:
        return MOUNTED / "scheduler.yaml"

    @property
    def kwok_stages(self) -> Path:
        return MOUNTED / KWOK_STAGES.name

    @property
    def kwok_metrics(self) -> Path:
        return MOUNTED / KWOK_METRICS.name


LAYOUT = _PodLayout(
    Path("/data"),
    Path("/logs"),
    API_SERVER_PORT,
    CONTROLLER_MANAGER_PORT,
    SCHEDULER_PORT,
    METRICS_SERVER_PORT,
    KUBELET_PORT,
)
CREDENTIALS = Credentials(
    ca_certificate=MOUNTED / "ca.crt",
    serving_certificate=MOUNTED / "serving.crt",
    serving_key=MOUNTED / "serving.key",
    service_account_public_key=MOUNTED / "service-account.pub",
    service_account_private_key=MOUNTED / "service-account.key",
    front_proxy=FrontProxy(
        MOUNTED / "front-proxy-ca.crt", MOUNTED / "front-proxy.crt", MOUNTED / "front-proxy.key"
    ),
    token_file=MOUNTED / "tokens.csv",
    tokens={},
    kubeconfigs={each.role: MOUNTED / f"{each.role}.kubeconfig" for each in IDENTITIES},
)


def command_lines(*, resource_metrics: bool = False) -> dict[str, list[str]]:
    """The arguments of each component, without its program.

    They listen on all addresses: kubelet probes them from outside of the pod.
    """
    settings = ControlPlaneConfig(resource_metrics=resource_metrics)
    programs = SimpleNamespace(
        **{
            name: Path(name)
            for name in (
                "etcd",
                "kube_apiserver",
                "kube_controller_manager",
                "kube_scheduler",
                "kwok",
                "metrics_server",
            )
        }
    )
    manager = components.kube_controller_manager(programs, LAYOUT, CREDENTIALS, settings)
    found = {
        "etcd": [
            *components.etcd(programs, LAYOUT),
            f"--listen-metrics-urls=http://{_EVERYWHERE}:{ETCD_METRICS_PORT}",
        ],
        "kube-apiserver": components.kube_apiserver(programs, LAYOUT, CREDENTIALS),
        "kube-controller-manager": [*manager, _METRICS_FOR_ALL],
        "kube-scheduler": [
            *components.kube_scheduler(programs, LAYOUT, CREDENTIALS),
            _METRICS_FOR_ALL,
        ],
        "kwok": components.kwok(programs, LAYOUT, CREDENTIALS),
    }
    if resource_metrics:
        server = metrics.metrics_server(programs, LAYOUT, CREDENTIALS)
        found["metrics-server"] = [*server, _METRICS_FOR_ALL]
    kubelet = metrics.kwok_flags(LAYOUT) if resource_metrics else [_server(LOOPBACK)]
    found["kwok"] += kubelet
    everywhere = {
        f"--bind-address={LOOPBACK}": f"--bind-address={_EVERYWHERE}",
        _server(LOOPBACK): _server(_EVERYWHERE),
    }
    return {
        name: [everywhere.get(each, each) for each in command[1:]]
        for name, command in found.items()
    }


def _server(host: str) -> str:
    """The flag by which kwok serves the kubelets' endpoints, and its own health and metrics."""
    return f"--server-address={host}:{KUBELET_PORT}"


def text() -> str:
    """The file of the chart; `withMetrics` has what differs in a cluster with resource metrics."""
    plain, measured = command_lines(), command_lines(resource_metrics=True)
    differing = {name: line for name, line in measured.items() if line != plain.get(name)}
    content = {**plain, "withMetrics": differing}
    return _HEADING + yaml.safe_dump(content, sort_keys=False, width=1000)


if __name__ == "__main__":
    sys.stdout.write(text())
