"""Creates kind clusters, loads images into them, and deletes them without a trace."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from controlplane.command import run_logged
from controlplane.errors import BinaryError
from kind.command import run
from kind.engine import Engine
from kind.errors import KindError
from kind.host_settings import (
    FORWARDING,
    exclusive_host_lock,
    restore_host_settings,
    shared_host_lock,
)
from kind.network import NETWORK, ensure_network, require_name_service
from kind.setup import Setup, Tools

_READY_SECONDS = 180
_LOAD_SECONDS = 300.0
_DELETE_SECONDS = 120.0
_LOGS_SECONDS = 120.0
_PROGRESS_SECONDS = 15.0


def create(
    setup: Setup,
    name: str,
    config: str,
    kubeconfig: Path,
    log: Path,
    progress: Callable[[str], None],
) -> None:
    """Create a cluster and wait until its nodes are Ready; kind's output goes to the log.

    A failed node is kept for export_logs; the caller must delete the cluster in any case. Raises
    KindError with kind's reason.
    """
    if len(yaml.safe_load(config)["nodes"]) > 1:
        require_name_service(setup.tools.engine)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("", encoding="utf-8")
    with (
        shared_host_lock(setup.tools.host_state),
        tempfile.NamedTemporaryFile("w", suffix=".yaml") as file,
    ):
        file.write(config)
        file.flush()
        ensure_network(setup.tools.engine, setup.tools.host_state.with_name("network.lock"))
        _run_kind_logged(
            setup.tools,
            f"creating the kind cluster {name}",
            [
                *("create", "cluster", f"--name={name}", f"--config={file.name}"),
                *(f"--image={setup.node_image.reference}", f"--kubeconfig={kubeconfig}"),
                *(f"--wait={_READY_SECONDS}s", "--retain"),
            ],
            log,
            progress,
        )
    if setup.node_image.air_gapped:
        _route_pods(setup.tools, name)


def load(tools: Tools, name: str, archive: Path) -> None:
    """Load an image archive into every node of a cluster. Raises KindError."""
    arguments = ("load", "image-archive", str(archive), f"--name={name}")
    _run_kind(tools, arguments, _LOAD_SECONDS)


def clusters(tools: Tools) -> tuple[str, ...]:
    """The names of all kind clusters on this engine."""
    return tuple(_run_kind(tools, ("get", "clusters", "--quiet"), 60.0).split())


def export_logs(tools: Tools, name: str, directory: Path) -> None:
    """Export a cluster's logs to a directory."""
    _run_kind(tools, ("export", "logs", str(directory), f"--name={name}"), _LOGS_SECONDS)


def delete(tools: Tools, name: str, kubeconfig: Path) -> tuple[str, ...]:
    """Delete a cluster, if it exists, and call `restore_host`.

    Raises KindError; OSError for a host setting that cannot be restored.
    """
    _kill_nodes(tools.engine, name)
    arguments = ("delete", "cluster", f"--name={name}", f"--kubeconfig={kubeconfig}")
    _run_kind(tools, arguments, _DELETE_SECONDS)
    kubeconfig.unlink(missing_ok=True)
    return restore_host(tools)


def restore_host(tools: Tools) -> tuple[str, ...]:
    """If no kind cluster exists or is starting, remove kind's network and restore the host's
    settings. Returns the names of restored settings.
    """
    with exclusive_host_lock(tools.host_state) as alone:
        if not alone or clusters(tools):
            return ()
        with suppress(KindError):  # in use, or never created
            tools.engine.run("network", "rm", NETWORK)
        # Other containers would lose connectivity.
        leave = FORWARDING if tools.engine.run("ps", "--quiet").strip() else ()
        return restore_host_settings(tools.host_state, leave=leave)


def _kill_nodes(engine: Engine, name: str) -> None:
    """Kill the nodes: a graceful shutdown takes the whole grace period."""
    label = f"label=io.x-k8s.kind.cluster={name}"
    nodes = engine.run("ps", "--quiet", f"--filter={label}").split()
    if nodes:
        engine.run("kill", "--signal=KILL", *nodes)


def _run_kind(tools: Tools, arguments: Sequence[str], timeout_seconds: float) -> str:
    command = [str(tools.kind), *arguments]
    return run(command, tools.engine.environment, timeout_seconds).decode("utf-8")


def _run_kind_logged(
    tools: Tools,
    purpose: str,
    arguments: Sequence[str],
    log: Path,
    progress: Callable[[str], None],
) -> None:
    try:
        run_logged(
            purpose,
            [str(tools.kind), *arguments],
            Path("/"),
            tools.engine.environment,
            log,
            lambda seconds: progress(f"{purpose}: {seconds:.0f} s elapsed"),
            _PROGRESS_SECONDS,
        )
    except BinaryError as error:
        reasons = _errors_said(log) or str(error)
        raise KindError(f"{purpose} failed: {reasons}; log: {log}") from error


def _errors_said(log: Path) -> str:
    """kind's and kubeadm's one-line errors, from hundreds of lines of output."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "; ".join(line for line in lines if line.startswith(("ERROR: ", "error: ")))


@dataclass(frozen=True)
class _Node:
    name: str
    address: str
    pods: str


def pod_routes(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """(node, `ip` arguments) for each route from a node to another node's pods.

    nodes are Node objects with podCIDR and an InternalIP.
    """
    known = [_node(node) for node in nodes]
    for here in known:
        for there in known:
            if here != there:
                yield here.name, ["route", "replace", there.pods, "via", there.address]


def _node(node: Mapping[str, Any]) -> _Node:
    addresses = {a["type"]: a["address"] for a in node["status"]["addresses"]}
    return _Node(node["metadata"]["name"], addresses["InternalIP"], node["spec"]["podCIDR"])


def _route_pods(tools: Tools, name: str) -> None:
    """Add routes between the nodes' pods, in place of kind's network plugin."""
    admin = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf")
    first = f"{name}-control-plane"
    nodes = json.loads(tools.engine.run("exec", first, *admin, "get", "nodes", "--output=json"))
    for node, arguments in pod_routes(nodes["items"]):
        tools.engine.run("exec", node, "ip", *arguments)
