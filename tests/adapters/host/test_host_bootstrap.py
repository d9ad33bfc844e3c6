"""Hosts register Nodes from bootstrap blobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bigfleet.adapters.host import bootstrap
from bigfleet.adapters.host.instant import InstantHost
from bigfleet.adapters.host.kwok import KwokHost
from bigfleet.model.need import Taint
from bigfleet.ports.host import Boot, HostFailure
from tests.adapters.host.machines import MACHINE

TOKEN = "secret-of-one-node"


def boot(**changes: Any) -> Boot:
    """A boot of m-1 with a valid blob and these changes."""
    blob = {
        "apiServer": "https://127.0.0.1:6443",
        "caPem": "pem",
        "token": TOKEN,
        "nodeName": "m-1",
        "labels": {"team": "blue", "topology.kubernetes.io/zone": "elsewhere"},
        "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
        "kubelet": {"maxPods": 30},
        "somethingLater": True,
    }
    return Boot(MACHINE, "m-1.2", msgspec.json.encode(blob | changes))


def node(given: Boot) -> Any:
    """The Node of the boot."""
    return bootstrap.node(given, bootstrap.decode(given), "kwok")


def test_the_node_is_the_machine_with_the_blobs_labels_and_taints() -> None:
    """The machine's own values override the blob's."""
    registered = node(boot())
    assert registered["metadata"]["name"] == "m-1"
    assert registered["metadata"]["labels"] == {
        "team": "blue",
        "topology.kubernetes.io/zone": "zone-a",
        "kubernetes.io/hostname": "m-1",
    }
    assert registered["metadata"]["annotations"] == {
        "kwok.x-k8s.io/node": "fake",
        "bigfleet.lucy.sh/operation": "m-1.2",
    }
    assert registered["spec"]["providerID"] == "bigfleet://kwok/m-1"
    assert registered["spec"]["taints"][0]["effect"] == "NoSchedule"


def test_the_node_has_the_machines_taints_before_the_blobs() -> None:
    """One per key and effect, as an API server requires; also after a takeover."""
    machine = replace(
        MACHINE, taints=(Taint("gpu", "a100", "NoSchedule"), Taint("k", "own", "NoSchedule"))
    )
    registered = node(replace(boot(), machine=machine))
    assert registered["spec"]["taints"] == [
        {"key": "gpu", "value": "a100", "effect": "NoSchedule"},
        {"key": "k", "value": "own", "effect": "NoSchedule"},
    ]
    other = [{"key": "k", "value": "v", "effect": "NoExecute"}]
    registered = node(replace(boot(taints=other), machine=machine))
    assert registered["spec"]["taints"][2:] == other
    assert bootstrap.takeover(registered)[2]["spec"]["taints"] == registered["spec"]["taints"]


def test_the_node_has_the_machines_capacity() -> None:
    """Capacity and allocatable differ; the blob may set the kubelet's pod limit."""
    status = node(boot())["status"]
    assert status["capacity"] == {"cpu": "4", "memory": "1048576Ki", "pods": "30"}
    assert status["allocatable"] == {"cpu": "3900m", "memory": "1048576Ki", "pods": "30"}
    assert node(boot(kubelet={}))["status"]["capacity"]["pods"] == "110"


def test_the_node_is_not_ready_when_it_registers() -> None:
    """Otherwise Kubernetes schedules pods to it at once."""
    [condition] = node(boot())["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("Ready", "False")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Boot(MACHINE, "m-1.2", b""), "invalid bootstrap blob"),
        (Boot(MACHINE, "m-1.2", b"\xff"), "invalid bootstrap blob"),
        (boot(token=7), r"invalid bootstrap blob: .*\$\.token"),
        (boot(nodeName="m-2"), "is for Node 'm-2', this machine is m-1"),
    ],
)
def test_an_invalid_blob_is_rejected_without_quoting_its_token(given: Boot, said: str) -> None:
    """last_error is widely readable; the token is a secret."""
    with pytest.raises(HostFailure, match=said) as failure:
        bootstrap.decode(given)
    assert TOKEN not in str(failure.value)
    assert TOKEN not in repr(given)


def test_a_taken_over_node_is_not_ready_at_first() -> None:
    """The old Node is claimed, made not Ready, and then marked with the new boot."""
    claim, not_ready, begin = bootstrap.takeover(node(boot()))
    assert claim == {"spec": {"providerID": "bigfleet://kwok/m-1"}}
    assert [c["status"] for c in not_ready["status"]["conditions"]] == ["False"]
    assert begin["metadata"]["annotations"]["bigfleet.lucy.sh/operation"] == "m-1.2"
    assert begin["metadata"]["labels"]["bigfleet.lucy.sh/heartbeat"] is None
    assert begin["spec"]["unschedulable"] is None


async def test_an_instant_host_rejects_only_an_empty_blob() -> None:
    """A provider without clusters can have a failed boot too."""
    host = InstantHost()
    await host.boot(boot(), timeout_seconds=1)
    with pytest.raises(HostFailure, match="blob is empty"):
        await host.boot(Boot(MACHINE, "m-1.2", b""), timeout_seconds=1)
    await host.wait_until_node_gone(MACHINE)
    await host.power_off(MACHINE)
    await host.close()


@pytest.mark.parametrize("cluster", ["../c", "/etc/c", "a/../../c", "c" * 300])
async def test_a_clusters_name_does_not_escape_the_directory(cluster: str, tmp_path: Path) -> None:
    """It is untrusted, and a kubeconfig elsewhere may run commands."""
    (tmp_path / "hosts").mkdir()
    (tmp_path / "c.kubeconfig").write_text("{}")
    host = KwokHost(tmp_path / "hosts", "kwok")
    with pytest.raises(HostFailure, match=r"no host can join|cannot be used"):
        await host.boot(replace(boot(), machine=replace(MACHINE, cluster=cluster)), 1.0)
    assert not host._clusters


@pytest.mark.parametrize(
    ("field", "value"),
    [("token", "a\nb"), ("apiServer", "//"), ("apiServer", "https://h:1x"), ("caPem", "pem")],
)
async def test_any_invalid_blob_is_a_host_failure(field: str, value: str, tmp_path: Path) -> None:
    """The blob is untrusted, and the process that reads it serves all clusters."""
    odd = boot(**{"caPem": "", field: value})
    with pytest.raises(HostFailure):
        await KwokHost(tmp_path, "kwok")._register(odd, bootstrap.decode(odd))
