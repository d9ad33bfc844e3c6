"""What kind and kubeadm are told: the same as a local control plane, and the shared folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kind.nodeimage.node import NodeImage
from loaddriver.substrates import components
from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.components import ControlPlaneConfig
from loaddriver.substrates.kind.config import kind_config
from loaddriver.substrates.kind.layout import NODE_PORTS, kind_name
from tests.substrates.kind_substrate_rig import layout

MADE_HERE = NodeImage("localhost/node:1", True, {"etcd": "3.7.3", "coredns": "1.14.2"})
KIND_NODE_IMAGE = NodeImage("kindest/node:v1.37.0", False, {})
SETTINGS = ControlPlaneConfig(gc_percent=150, node_monitor_grace_seconds=40)


@pytest.fixture(params=[MADE_HERE, KIND_NODE_IMAGE], ids=["made-here", "kinds-own"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(kind_config(request.param, layout(tmp_path), SETTINGS))
    return loaded


def kubeadm(config: dict[str, Any], component: str) -> dict[str, Any]:
    """The component's part of the last ClusterConfiguration, which is ours."""
    patches = [yaml.safe_load(patch) for patch in config["kubeadmConfigPatches"]]
    *_, last = (patch for patch in patches if patch["kind"] == "ClusterConfiguration")
    part: dict[str, Any] = last[component]
    return part


def arguments(part: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in part["extraArgs"]}


def test_the_api_server_has_the_limits_and_the_log_of_a_local_one(config: dict[str, Any]) -> None:
    part = kubeadm(config, "apiServer")
    folder = Path("/bigfleet")
    local = components.api_server_flags(
        folder / "credentials/tokens.csv",
        folder / "config/audit-policy.yaml",
        folder / "logs/c1/audit.log",
    )
    assert [f"--{name}={value}" for name, value in arguments(part).items()] == local


def test_every_path_that_a_component_reads_is_mounted_into_it(config: dict[str, Any]) -> None:
    """Node and pod see each folder at the same path; only the audit log may be written to."""
    for name in ("apiServer", "scheduler"):
        part = kubeadm(config, name)
        folders = {each["mountPath"] for each in part["extraVolumes"]}
        assert all(each["hostPath"] == each["mountPath"] for each in part["extraVolumes"])
        paths = [value for value in arguments(part).values() if value.startswith("/bigfleet")]
        assert all(str(Path(path).parent) in folders for path in paths)
    writable = [
        v["mountPath"] for v in kubeadm(config, "apiServer")["extraVolumes"] if not v["readOnly"]
    ]
    assert writable == ["/bigfleet/logs/c1"]


def test_the_controllers_are_those_of_a_local_cluster_and_what_real_pods_need(
    config: dict[str, Any],
) -> None:
    told = arguments(kubeadm(config, "controllerManager"))
    local = components.controller_manager_flags(components.CONTROLLERS, SETTINGS)
    for flag in local:
        name, _, value = flag.removeprefix("--").partition("=")
        if name == "controllers":
            assert set(value.split(",")) < set(told[name].split(","))
        else:
            assert told[name] == value


def test_the_scheduler_reads_the_configuration_that_a_local_one_reads(
    config: dict[str, Any],
) -> None:
    told = arguments(kubeadm(config, "scheduler"))
    assert told == {"config": "/bigfleet/config/scheduler.yaml", "leader-elect": "false"}


def test_memory_settings_are_those_of_the_run(config: dict[str, Any]) -> None:
    """Go's collector as asked for, and etcd in memory without waiting for a disk."""
    for name in ("apiServer", "controllerManager", "scheduler"):
        assert kubeadm(config, name)["extraEnvs"] == [{"name": "GOGC", "value": "150"}]
    etcd = kubeadm(config, "etcd")["local"]
    assert etcd["dataDir"].startswith("/tmp/")
    assert arguments(etcd) == {"unsafe-no-fsync": "true"}


def test_every_port_for_roles_is_on_loopback_only(config: dict[str, Any]) -> None:
    """At a port that the engine chooses, so that nobody else can have it."""
    [node] = config["nodes"]
    mappings = node["extraPortMappings"]
    assert [each["containerPort"] for each in mappings] == list(NODE_PORTS)
    assert {(each["listenAddress"], each["hostPort"]) for each in mappings} == {("127.0.0.1", -1)}


def test_the_node_sees_the_runs_folders(config: dict[str, Any], tmp_path: Path) -> None:
    [node] = config["nodes"]
    mounts = {m["containerPath"]: (m["hostPath"], m["readOnly"]) for m in node["extraMounts"]}
    data = tmp_path / "data" / "c1"
    assert mounts == {
        "/bigfleet/credentials": (str(data / "credentials"), True),
        "/bigfleet/config": (str(data / "config"), True),
        "/bigfleet/volumes": (str(data / "volumes"), False),
        "/bigfleet/logs": (str(tmp_path / "logs"), False),
    }


def test_what_the_node_does_not_see_has_no_path_there(tmp_path: Path) -> None:
    with pytest.raises(SubstrateError, match="is in no folder"):
        layout(tmp_path).in_node(Path("/etc/passwd"))


def test_a_cluster_is_named_after_its_run() -> None:
    """The run's id ends the name, so the clusters of one run are never taken for another's."""
    assert kind_name("c1", "smoke-20261121-080102") == "c1-smoke-20261121-080102"
    assert kind_name("c2", "My_run.1") == "c2-my-run.1"
    with pytest.raises(SubstrateError, match="limit 48"):
        kind_name("c1", "x" * 48)
