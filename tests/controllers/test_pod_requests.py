"""What a Pod needs of a machine, read from the Pod as the API server writes it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.controllers.operator.pods import PodOnNode, blocking_pods
from bigfleet.controllers.pod_controller.pods import Pod
from bigfleet.controllers.pod_controller.requests import (
    manifest_for,
    needs_request,
    request_for,
    request_name,
)
from bigfleet.controllers.pod_controller.shapes import shape_of
from bigfleet.controllers.podspec.amounts import effective_requests
from bigfleet.controllers.podspec.unsupported import Unsupported
from bigfleet.kube.pod_types import PodStatus
from bigfleet.model import resources
from tests.controllers.pod_rig import pod


def _pod(spec: dict[str, Any] | None = None, phase: str = "Pending", **metadata: Any) -> Pod:
    raw = {
        "metadata": {"name": "p", "namespace": "team", "uid": "0123456789ab", **metadata},
        "spec": {"containers": [_container("1", "1Gi")], **(spec or {})},
        "status": {"phase": phase},
    }
    return msgspec.json.decode(json.dumps(raw), type=Pod)


def _container(cpu: str, memory: str, **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


def _sidecar(cpu: str) -> dict[str, Any]:
    return _container(cpu, "0", restartPolicy="Always")


def test_a_plain_pod_asks_for_its_containers_a_pod_slot_and_any_machine() -> None:
    assert request_for(_pod()) == {
        "resources": {"cpu": "1", "memory": "1048576Ki", "pods": "1"},
        "priority": 0,
        "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "Exists"}],
    }


def test_a_pod_without_requests_still_takes_a_pod_slot() -> None:
    assert request_for(_pod({"containers": [{"name": "c"}]}))["resources"] == {"pods": "1"}


@pytest.mark.parametrize(
    ("spec", "millicores"),
    [
        ({"containers": [_container("1", "0"), _container("500m", "0")]}, 1500),
        ({"initContainers": [_container("3", "0")]}, 3000),
        ({"initContainers": [_container("200m", "0"), _container("100m", "0")]}, 1000),
        ({"initContainers": [_sidecar("2")]}, 3000),
        ({"initContainers": [_sidecar("2"), _container("4", "0")]}, 6000),
        ({"initContainers": [_container("4", "0"), _sidecar("2")]}, 4000),
        ({"overhead": {"cpu": "250m"}}, 1250),
        ({"resources": {"requests": {"cpu": "700m"}}}, 700),
        ({"resources": {"requests": {"cpu": "700m"}}, "overhead": {"cpu": "100m"}}, 800),
    ],
    ids=[
        "containers-add-up",
        "an-initial-peak-counts",
        "initial-containers-run-one-after-the-other",
        "sidecars-run-along",
        "an-initial-container-runs-beside-earlier-sidecars",
        "an-initial-container-does-not-run-beside-later-sidecars",
        "overhead-is-added",
        "the-pods-own-request-replaces-its-containers",
        "overhead-is-added-to-the-pods-own-request-too",
    ],
)
def test_effective_cpu_is_what_the_scheduler_reserves(
    spec: dict[str, Any], millicores: int
) -> None:
    assert effective_requests(_pod(spec).spec)["cpu"] == millicores


@given(
    containers=st.lists(st.integers(0, 5000), min_size=1, max_size=4),
    initial=st.lists(st.tuples(st.integers(0, 5000), st.booleans()), max_size=5),
)
def test_effective_requests_cover_every_moment_of_a_pods_life(
    containers: list[int], initial: list[tuple[int, bool]]
) -> None:
    spec = {
        "containers": [_container(f"{c}m", "0") for c in containers],
        "initContainers": [
            _sidecar(f"{c}m") if s else _container(f"{c}m", "0") for c, s in initial
        ],
    }
    moments, running = [], 0
    for cpu, sidecar in initial:
        moments.append(running + cpu)
        running += cpu if sidecar else 0
    assert effective_requests(_pod(spec).spec).get("cpu", 0) == max(
        [*moments, running + sum(containers)]
    )


@pytest.mark.parametrize(
    ("spec", "metadata", "words"),
    [
        (
            {},
            {"annotations": {"bigfleet.lucy.sh/interruption-penalty": "dear"}},
            "bigfleet.lucy.sh/interruption-penalty 'dear'",
        ),
        ({"containers": [_container("9E", "0")]}, {}, "request for cpu"),
    ],
)
def test_an_amount_that_cannot_be_carried_is_an_error_that_names_it(
    spec: dict[str, Any], metadata: dict[str, Any], words: str
) -> None:
    with pytest.raises(Unsupported) as refused:
        request_for(_pod(spec, **metadata))
    assert words in str(refused.value)


def test_a_refusal_is_counted_without_names_that_people_choose() -> None:
    """Whoever may create pods could otherwise make as many time series as they like."""
    kinds = set()
    for name in ("example.com/one", "example.com/two"):
        container = {"name": "c", "resources": {"requests": {name: "9E"}}}
        with pytest.raises(Unsupported) as refused:
            request_for(_pod({"containers": [container]}))
        assert refused.value.field == f"request for {name}"
        kinds.add(refused.value.metric_label)
    assert kinds == {"request"}


def test_penalties_and_priority_are_carried() -> None:
    annotations = {
        "bigfleet.lucy.sh/interruption-penalty": "0.5",
        "bigfleet.lucy.sh/reclamation-penalty": "100",
    }
    request = request_for(_pod({"priority": -7}, annotations=annotations))
    assert (request["priority"], request["interruptionPenalty"]) == (-7, "0.5")
    assert request["reclamationPenalty"] == "100"


def _resized(asked: str, actual: str, allocated: str, reason: str) -> Pod:
    """A container that is being resized in place, as an API server shows it."""
    pod = _pod({"containers": [_container(asked, "0")]})
    pod.status = msgspec.convert(
        {
            "containerStatuses": [
                {
                    "name": "c",
                    "resources": {"requests": {"cpu": actual}},
                    "allocatedResources": {"cpu": allocated},
                }
            ],
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
        },
        PodStatus,
    )
    return pod


@pytest.mark.parametrize(
    ("asked", "actual", "allocated", "reason", "millicores"),
    [
        ("2", "1", "1", "Deferred", 2000),
        ("1", "2", "2", "Deferred", 2000),
        ("1", "1", "3", "", 3000),
        ("9", "1", "2", "Infeasible", 2000),
    ],
    ids=["grows", "shrinks", "admitted-and-not-carried-out", "can-never-be-carried-out"],
)
def test_a_pod_that_is_resized_in_place_counts_as_the_scheduler_counts_it(
    asked: str, actual: str, allocated: str, reason: str, millicores: int
) -> None:
    """The larger of the spec and of what its machine has set aside, until the two agree."""
    assert request_for(_resized(asked, actual, allocated, reason))["resources"]["cpu"] == (
        resources.text("cpu", millicores)
    )


def test_sidecars_and_the_pods_own_requests_are_resized_too_and_init_containers_are_not() -> None:
    spec = {
        "initContainers": [_sidecar("1") | {"name": "side"}, _container("1", "0") | {"name": "i"}],
        "containers": [_container("1", "0")],
    }
    doubled = {"resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "2"}}
    status = {"initContainerStatuses": [{"name": name, **doubled} for name in ("side", "i")]}
    pod = _pod(spec)
    pod.status = msgspec.convert(status, PodStatus)
    assert effective_requests(pod.spec, pod.status)["cpu"] == 3000
    pod = _pod({"resources": {"requests": {"cpu": "5"}}})
    pod.status = msgspec.convert(
        {"resources": {"requests": {"cpu": "6"}}, "allocatedResources": {"cpu": "7"}}, PodStatus
    )
    assert effective_requests(pod.spec, pod.status)["cpu"] == 7000


def test_extended_byte_sized_and_pod_level_resources_are_carried() -> None:
    requests = {"nvidia.com/gpu": 2, "cpu": "1", "ephemeral-storage": "1G", "hugepages-2Mi": "4Mi"}
    containers = [{"name": "c", "resources": {"requests": requests}}]
    own = {"requests": {"cpu": "3", "memory": "1Gi"}}
    assert request_for(_pod({"containers": containers, "resources": own}))["resources"] == {
        "cpu": "3",
        "memory": "1048576Ki",
        "nvidia.com/gpu": "2",
        "ephemeral-storage": "976563Ki",
        "hugepages-2Mi": "4096Ki",
        "pods": "1",
    }


def test_a_pod_behind_scheduling_gates_wants_nothing_until_they_are_gone() -> None:
    """kube-scheduler does not look at it, so no machine would be used."""
    assert not needs_request(_pod({"schedulingGates": [{"name": "example.com/quota"}]}))
    assert needs_request(_pod({"schedulingGates": []}))


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_wants_nothing(phase: str) -> None:
    assert not needs_request(_pod(phase=phase))


@pytest.mark.parametrize(("node", "wants"), [("", False), ("n-1", True)])
def test_a_deleted_pod_that_will_never_run_wants_nothing(node: str, wants: bool) -> None:
    """A finalizer may hold it for as long as its controller is away."""
    gone = {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert needs_request(pod(metadata=gone, nodeName=node)) == wants


@pytest.mark.parametrize(("kind", "wants"), [("DaemonSet", False), ("Node", False), ("Job", True)])
def test_pods_that_every_node_brings_along_want_nothing(kind: str, wants: bool) -> None:
    """Else a Node that runs nothing but its own daemons would never be given back."""
    owner = {"kind": kind, "name": "o", "controller": True}
    assert needs_request(_pod(ownerReferences=[owner])) is wants


def test_a_static_pod_is_its_nodes_own_for_requests_and_drains_alike() -> None:
    """A drain would wait for a pod that leaves with its Node."""
    static = _pod(annotations={"kubernetes.io/config.mirror": "x"})
    assert not needs_request(static)
    assert shape_of(static).is_per_node
    metadata = {"name": "p", "annotations": static.metadata.annotations}
    assert blocking_pods([msgspec.convert({"metadata": metadata}, PodOnNode)]) == []


_LABEL = r"[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?"


@given(st.from_regex(rf"{_LABEL}(\.{_LABEL}){{0,3}}", fullmatch=True))
def test_names_are_legal_and_differ_between_pods_of_one_name(name: str) -> None:
    first, second = request_name(name, "aaaaaaaa-1"), request_name(name, "bbbbbbbb-1")
    assert first != second
    assert len(first) <= 253
    assert "..-" not in first
    assert ".-" not in first[-10:]


def test_a_request_belongs_to_its_pod_without_holding_up_its_deletion() -> None:
    pod = _pod()
    body = manifest_for(pod.metadata, "a-name", request_for(pod))
    assert body["metadata"]["name"] == "a-name"
    assert body["metadata"]["labels"] == {"bigfleet.lucy.sh/pod-uid": "0123456789ab"}
    [owner] = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", "0123456789ab")
    assert not owner["controller"]
    assert not owner["blockOwnerDeletion"]
