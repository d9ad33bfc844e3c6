"""What is put into a kind cluster, word for word, and the rules that no change may break."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.components import ControlPlaneConfig
from loaddriver.substrates.kind import cluster_objects
from loaddriver.substrates.kind.manifests import Port, Workload, workload_objects
from loaddriver.substrates.kind.roles import RoleEnvironment, prepare_files, role_workload
from loaddriver.substrates.placeholders import API_SERVER
from tests.substrates.kind_substrate_rig import layout, operator, shard

GOLDEN = Path(__file__).with_name("golden")
REWRITE = "REWRITE_GOLDEN"
PLACE = RoleEnvironment(
    image="localhost/bigfleet:1",
    api_server="https://10.89.0.2:6443",
    ports=(Port("listen", 8080, 30000), Port("observe", 8081, 30001)),
    peers={"provider/listen": "provider.bigfleet-system.svc.cluster.local:8080"},
    environment={"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "HOME": "/root", "PATH": "/bin"},
)


def shard_workload() -> Workload:
    return role_workload(shard(), PLACE)


def operator_workload() -> Workload:
    peers = {"shard-0/listen": "10.89.0.2:30000"}
    place = RoleEnvironment(
        PLACE.image, PLACE.api_server, PLACE.ports[1:], peers, PLACE.environment
    )
    return role_workload(operator(), place)


def kwok_workload() -> Workload:
    return cluster_objects.kwok(layout(Path("/run")), "localhost/kwok:1", ControlPlaneConfig())


@pytest.mark.parametrize(
    ("name", "objects"),
    [
        ("shard", workload_objects(shard_workload())),
        ("operator", workload_objects(operator_workload())),
        ("kwok", workload_objects(kwok_workload())),
        (
            "cluster_objects",
            [*cluster_objects.namespaces(), *cluster_objects.volumes(layout(Path("/run")))],
        ),
    ],
)
def test_manifests_are_word_for_word_what_was_reviewed(name: str, objects: Iterable[Any]) -> None:
    """REWRITE_GOLDEN=1 writes them anew; read the difference before it is committed."""
    text = yaml.safe_dump_all([dict(each) for each in objects], sort_keys=False)
    file = GOLDEN / f"{name}.yaml"
    if os.environ.get(REWRITE):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("workload", [shard_workload(), operator_workload(), kwok_workload()])
def test_every_pod_meets_the_restricted_level_of_pod_security(workload: Workload) -> None:
    """Non-root, no new privileges, no capabilities, the runtime's seccomp; and a read-only root."""
    spec = pod_of(workload)
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for container in spec["containers"]:
        security = container["securityContext"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        assert set(container["resources"]) == {"requests", "limits"}
    assert {"hostPath", "hostNetwork", "hostPID"}.isdisjoint(str(spec))


def test_a_role_without_api_access_gets_no_token() -> None:
    assert pod_of(shard_workload())["automountServiceAccountToken"] is False
    operator = pod_of(operator_workload())
    assert operator["automountServiceAccountToken"] is True
    assert operator["serviceAccountName"] == "bigfleet-operator"


def test_a_role_that_keeps_state_is_a_stateful_set() -> None:
    """Never two at once on the same files."""
    kinds = {each["kind"] for each in workload_objects(shard_workload())}
    assert kinds == {"ServiceAccount", "Service", "StatefulSet"}
    assert "Deployment" in {each["kind"] for each in workload_objects(operator_workload())}


def test_arguments_name_what_the_pod_sees_and_nothing_of_this_machine() -> None:
    arguments = " ".join(shard_workload().arguments)
    assert arguments == (
        "shard --listen 0.0.0.0:8080 --observe 0.0.0.0:8081 "
        "--provider provider.bigfleet-system.svc.cluster.local:8080 --state /state "
        "--inventory /inputs/inventory --journal /outputs/machines.jsonl --host-kubeconfigs "
        "/access/hosts --identity /access/identity"
    )
    assert operator_workload().environment == {
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "NUMBA_CACHE_DIR": "/tmp/kernels",
    }


def test_a_peer_that_was_not_started_is_named() -> None:
    lonely = RoleEnvironment(PLACE.image, PLACE.api_server, PLACE.ports, {}, {})
    with pytest.raises(SubstrateError, match=r"role shard-0: unknown placeholder \{provider/list"):
        role_workload(shard(), lonely)


def test_machines_are_told_an_api_server_that_all_of_them_reach() -> None:
    """A ClusterIP would lead a machine of another cluster to the wrong API server."""
    assert f"{{{API_SERVER}}}" in operator().arguments
    assert PLACE.api_server in operator_workload().arguments


def test_what_a_role_writes_is_open_to_its_user_and_found_here(tmp_path: Path) -> None:
    """The journal is a file of this machine from the start, so it outlives the pod."""
    place = layout(tmp_path)
    place.volumes.mkdir(parents=True)
    place.logs.mkdir()
    role = shard()
    source = tmp_path / "inventory.jsonl"
    source.write_text("{}\n")
    prepare_files(type(role)(**{**vars(role), "inputs": {"inventory": source}}), place)
    assert (place.volumes / "shard-0/state").stat().st_mode & 0o777 == 0o777
    assert (place.volumes / "shard-0/inputs/inventory").read_text() == "{}\n"
    assert (place.logs / "machines.jsonl").stat().st_mode & 0o777 == 0o666


def pod_of(workload: Workload) -> dict[str, Any]:
    *_, last = workload_objects(workload)
    spec: dict[str, Any] = last["spec"]["template"]["spec"]
    return spec
