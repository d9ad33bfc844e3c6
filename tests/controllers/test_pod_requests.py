"""What a Pod needs of a machine, read from the Pod as the API server writes it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.controllers.pod_controller.pods import Pod
from bigfleet.controllers.pod_controller.requests import (
    Unsupported,
    effective_requests,
    ignored_wishes,
    manifest_for,
    request_for,
    request_name,
    wants_request,
)

_RACK = "topology.bigfleet/rack"


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


def _node_affinity(*expressions: dict[str, Any], **more: Any) -> dict[str, Any]:
    terms = [{"matchExpressions": list(expressions), **more}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def _with_peers(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}
    return {"affinity": {"podAffinity": required}}


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
    assert effective_requests(_pod(spec))["cpu"] == millicores


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
    assert effective_requests(_pod(spec)).get("cpu", 0) == max(
        [*moments, running + sum(containers)]
    )


def test_node_selector_and_first_required_node_affinity_term_become_requirements() -> None:
    spec = {
        "nodeSelector": {"zone": "a", "arch": "arm64"},
        **_node_affinity(
            {"key": "type", "operator": "In", "values": ["m1", "m2"]},
            {"key": "gpu", "operator": "DoesNotExist"},
        ),
    }
    assert request_for(_pod(spec))["requirements"] == [
        {"key": "arch", "operator": "In", "values": ["arm64"]},
        {"key": "zone", "operator": "In", "values": ["a"]},
        {"key": "type", "operator": "In", "values": ["m1", "m2"]},
        {"key": "gpu", "operator": "DoesNotExist"},
    ]


@pytest.mark.parametrize(
    ("spec", "metadata", "words"),
    [
        (
            _node_affinity({"key": "cores", "operator": "Gt", "values": ["4"]}),
            {},
            "asks Gt of cores",
        ),
        (
            _node_affinity({"key": "cores", "operator": "Lt", "values": ["4"]}),
            {},
            "asks Lt of cores",
        ),
        (_node_affinity(), {}, "matches no Node"),
        (
            _node_affinity(
                matchFields=[{"key": "metadata.name", "operator": "In", "values": ["n"]}]
            ),
            {},
            "to Nodes by name",
        ),
        (
            {},
            {"annotations": {"bigfleet.lucy.sh/interruption-penalty": "dear"}},
            "bigfleet.lucy.sh/interruption-penalty 'dear'",
        ),
        ({"containers": [_container("9E", "0")]}, {}, "request for cpu"),
    ],
)
def test_a_wish_that_cannot_be_carried_over_is_an_error_that_names_it(
    spec: dict[str, Any], metadata: dict[str, Any], words: str
) -> None:
    with pytest.raises(Unsupported) as refused:
        request_for(_pod(spec, **metadata))
    assert words in str(refused.value)


def test_the_first_required_pod_affinity_term_becomes_co_location() -> None:
    selector = {
        "matchLabels": {"gang": "7"},
        "matchExpressions": [{"key": "app", "operator": "Exists"}],
    }
    spec = _with_peers({"topologyKey": _RACK, "labelSelector": selector}, {"topologyKey": "zone"})
    pod = _pod(spec)
    assert request_for(pod)["coLocation"] == {"topologyKey": _RACK, "labelSelector": selector}
    assert list(ignored_wishes(pod)) == ["podAffinity.required[1:]"]


def test_what_is_not_carried_is_named() -> None:
    soft = [{"weight": 1}]
    affinity = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": soft,
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                    {"matchExpressions": [{"key": "b", "operator": "Exists"}]},
                ]
            },
        },
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "namespaces": ["other"]}
            ],
            "preferredDuringSchedulingIgnoredDuringExecution": soft,
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "host"}],
            "preferredDuringSchedulingIgnoredDuringExecution": soft,
        },
    }
    assert list(ignored_wishes(_pod({"affinity": affinity}))) == [
        "nodeAffinity.preferred",
        "nodeAffinity.required[1:]",
        "podAffinity.required[0].namespaces",
        "podAffinity.preferred",
        "podAntiAffinity.required",
        "podAntiAffinity.preferred",
    ]
    assert list(ignored_wishes(_pod())) == []


def test_spread_priority_and_penalties_are_carried() -> None:
    constraint = {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"}
    annotations = {
        "bigfleet.lucy.sh/interruption-penalty": "0.5",
        "bigfleet.lucy.sh/reclamation-penalty": "100",
    }
    spec = {"priority": -7, "topologySpreadConstraints": [{**constraint, "labelSelector": {}}]}
    request = request_for(_pod(spec, annotations=annotations))
    assert request["topologySpread"] == [constraint]
    assert (request["priority"], request["interruptionPenalty"]) == (-7, "0.5")
    assert request["reclamationPenalty"] == "100"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_wants_nothing(phase: str) -> None:
    assert not wants_request(_pod(phase=phase))


@pytest.mark.parametrize(("kind", "wants"), [("DaemonSet", False), ("Node", False), ("Job", True)])
def test_pods_that_every_node_brings_along_want_nothing(kind: str, wants: bool) -> None:
    """Else a Node that runs nothing but its own daemons would never be given back."""
    assert wants_request(_pod(ownerReferences=[{"kind": kind, "name": "o"}])) is wants


@given(st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", fullmatch=True))
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
