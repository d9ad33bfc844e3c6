"""The operator's small decisions: phases, backoff, what keeps a Node, hints, whose a Node is."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.api.v1alpha1.capacity_pb2 import NodeSelectorRequirement
from bigfleet.api.v1alpha1.provider_pb2 import Resources
from bigfleet.api.v1alpha1.shard_pb2 import AvailableCapacityUpdate, MachineDisruption
from bigfleet.api.wellknown import MACHINE_LABEL, RECLAIM_DEADLINE
from bigfleet.controllers.operator.available_capacity import availability_name, availability_object
from bigfleet.controllers.operator.disruptions import rejection_reason, select_machines
from bigfleet.controllers.operator.node_types import Node
from bigfleet.controllers.operator.phase_effects import (
    PhaseEffects,
    Removal,
    phase_after,
    phase_effects,
)
from bigfleet.controllers.operator.pods import Budget, PodOnNode, blocking_pods
from bigfleet.controllers.operator.session import backoff_seconds
from bigfleet.kube.timestamps import rfc3339_micro
from bigfleet.model.machine import MachineState


@pytest.mark.parametrize(
    ("known", "state", "phase"),
    [
        (None, MachineState.CREATING, "Provisioning"),
        ("Provisioning", MachineState.IDLE, "Launched"),
        ("Launched", MachineState.IDLE, "Launched"),
        ("Launched", MachineState.CONFIGURING, "Registered"),
        (None, MachineState.CONFIGURED, "Ready"),
        ("Ready", MachineState.DRAINING, "Draining"),
        ("Draining", MachineState.IDLE, None),
        ("Registered", MachineState.IDLE, None),
        ("Ready", MachineState.IDLE, None),
        (None, MachineState.IDLE, None),
        ("Ready", MachineState.SPECULATIVE, None),
        ("Draining", MachineState.DELETING, None),
        ("Ready", MachineState.FAILED, "Failed"),
        ("Failed", MachineState.IDLE, None),
    ],
)
def test_a_machine_that_comes_back_idle_has_left_and_one_never_joined_has_not(
    known: str | None, state: MachineState, phase: str | None
) -> None:
    assert phase_after(known, state) == phase


@pytest.mark.parametrize(
    ("known", "state", "joining", "expected"),
    [
        ("Ready", MachineState.SPECULATIVE, False, PhaseEffects(None, True, Removal.ANY)),
        ("Ready", MachineState.IDLE, False, PhaseEffects(None, True, Removal.ANY)),
        ("Draining", MachineState.IDLE, True, PhaseEffects(None, False, Removal.RECLAIMED)),
        (None, MachineState.IDLE, False, PhaseEffects(None, False, Removal.RECLAIMED)),
        (None, MachineState.SPECULATIVE, True, PhaseEffects(None, True, Removal.ANY)),
        ("Registered", MachineState.FAILED, True, PhaseEffects("Failed", True, Removal.ANY)),
        ("Registered", MachineState.CONFIGURED, True, PhaseEffects("Ready", True, Removal.NONE)),
        ("Ready", MachineState.DRAINING, False, PhaseEffects("Draining", False, Removal.NONE)),
    ],
)
def test_a_machine_that_may_be_joining_keeps_its_credential_and_its_new_node(
    known: str | None, state: MachineState, joining: bool, expected: PhaseEffects
) -> None:
    assert phase_effects(known, state, joining=joining) == expected


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_redialing_waits_between_a_quarter_and_thirty_seconds(failures: int, random: float) -> None:
    delay = backoff_seconds(failures, random)
    assert 0.25 <= delay <= 30
    assert delay <= backoff_seconds(failures + 1, random)


def _pod(phase: str = "Running", **metadata: Any) -> PodOnNode:
    raw = {"metadata": {"name": "p", "namespace": "n", "uid": "u", **metadata}}
    return msgspec.json.decode(json.dumps(raw | {"status": {"phase": phase}}), type=PodOnNode)


def test_daemons_mirrors_and_finished_pods_do_not_keep_a_node() -> None:
    ordinary = _pod(ownerReferences=[{"kind": "ReplicaSet", "controller": True}])
    assert blocking_pods([ordinary]) == [ordinary]
    assert blocking_pods([_pod(ownerReferences=[{"kind": "DaemonSet", "controller": True}])]) == []
    assert blocking_pods([_pod(annotations={"kubernetes.io/config.mirror": "x"})]) == []
    assert blocking_pods([_pod("Succeeded"), _pod("Failed")]) == []


def test_a_pod_that_is_leaving_keeps_its_node_until_it_has_left() -> None:
    terminating = _pod(deletionTimestamp="2026-01-01T00:00:00Z")
    assert blocking_pods([terminating]) == [terminating]


_OWNED = [{"kind": "ReplicaSet", "controller": True}]


def test_a_pod_that_nobody_would_make_anew_or_that_is_marked_is_immovable() -> None:
    assert "n/p has no controller" in _pod().not_evictable_reason
    assert "n/p has no controller" in _pod(ownerReferences=[{"kind": "Node"}]).not_evictable_reason
    marked = _pod(ownerReferences=_OWNED, annotations={"bigfleet.lucy.sh/do-not-disrupt": "true"})
    assert (
        marked.not_evictable_reason == "pod n/p is annotated bigfleet.lucy.sh/do-not-disrupt=true"
    )
    assert _pod(ownerReferences=_OWNED).not_evictable_reason == ""


def test_a_jobs_pods_are_known_by_their_controller() -> None:
    assert _pod(ownerReferences=[{"kind": "Job", "controller": True}]).batch
    assert not _pod(ownerReferences=_OWNED).batch


def _budget(selector: dict[str, Any] | None, allowed: int, namespace: str = "n") -> Budget:
    raw = {
        "metadata": {"name": "b", "namespace": namespace},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed},
    }
    return msgspec.json.decode(json.dumps(raw), type=Budget)


@pytest.mark.parametrize(
    ("selector", "allowed", "namespace", "forbidden"),
    [
        ({"matchLabels": {"app": "x"}}, 1, "n", True),
        ({"matchLabels": {"app": "x"}}, 2, "n", False),
        ({"matchLabels": {"app": "y"}}, 0, "n", False),
        ({"matchLabels": {"app": "x"}}, 0, "other", False),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, 1, "n", True),
        (
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]},
            0,
            "n",
            True,
        ),
        ({}, 2, "n", True),
        (None, 0, "n", False),
    ],
)
def test_a_budget_forbids_what_would_take_more_of_its_pods_than_it_allows(
    selector: dict[str, Any] | None, allowed: int, namespace: str, forbidden: bool
) -> None:
    """Two pods of an app and one without labels are on the Node."""
    pods = [_pod(labels={"app": "x"}), _pod(labels={"app": "x"}), _pod()]
    assert bool(_budget(selector, allowed, namespace).forbids(pods)) is forbidden


def _disruption(machine_id: str, cost: float = 1.0, blocked: str = "") -> MachineDisruption:
    return MachineDisruption(machine_id=machine_id, pods=1, cost=cost, blocked=blocked)


def test_half_of_a_report_is_kept_for_machines_that_were_asked_about() -> None:
    """In the order in which they are best given back; those that may not go come last."""
    found = [_disruption("stuck", blocked="x"), *(_disruption(name) for name in "abcdef")]
    assert [m.machine_id for m in select_machines(found, {"e", "f"}, 4)] == ["a", "b", "e", "f"]
    assert [m.machine_id for m in select_machines(found, set(), 2)] == ["a", "b"]
    assert [m.machine_id for m in select_machines(found, {"a", "b", "c"}, 2)] == ["a", "b"]
    assert [m.machine_id for m in select_machines(found, {"f"}, 9)] == [*"abcdef", "stuck"]


@pytest.mark.parametrize(
    ("costs", "most", "words"),
    [
        ([3.0], 3.0, ""),
        ([1.5, 1.5], 3.0, ""),
        ([0.1] * 10, 1.0, ""),
        ([2.0, 1.5], 3.0, "evicting 2 pods would cost 3.5, more than 3"),
        ([], 0.0, ""),
    ],
)
def test_a_reclaim_is_refused_when_all_its_nodes_together_cost_too_much(
    costs: list[float], most: float, words: str
) -> None:
    assert rejection_reason([_disruption("m", cost) for cost in costs], most) == words
    blocked = [*(_disruption("m", cost) for cost in costs), _disruption("k", 0.0, "why")]
    assert rejection_reason(blocked, most) == "k: why"


def test_only_the_node_of_the_machine_of_its_name_is_ours() -> None:
    assert _node(labels={MACHINE_LABEL: "m-1"}).not_owned_reason == ""
    assert "has no label bigfleet.lucy.sh/machine" in _node().not_owned_reason
    assert "belongs to another machine" in _node(labels={MACHINE_LABEL: "m-2"}).not_owned_reason


def _node(provider_id: str = "", **metadata: Any) -> Node:
    raw = {"metadata": {"name": "m-1", "uid": "u", **metadata}, "spec": {"providerID": provider_id}}
    return msgspec.json.decode(json.dumps(raw), type=Node)


def test_a_node_is_the_machines_by_provider_id_or_else_by_our_label() -> None:
    ours = {MACHINE_LABEL: "m-1"}
    assert _node("fake://m-1").is_machine("m-1", "fake://m-1")
    assert not _node("other://9", labels=ours).is_machine("m-1", "fake://m-1")
    assert _node(labels=ours).is_machine("m-1", "fake://m-1")
    assert not _node().is_machine("m-1", "")
    assert not _node(labels={MACHINE_LABEL: "m-2"}).is_machine("m-1", "")


def test_only_our_annotation_makes_a_node_one_that_we_are_emptying() -> None:
    assert _node(annotations={RECLAIM_DEADLINE: "12.5"}).reclaim_deadline == 12.5
    assert _node(annotations={RECLAIM_DEADLINE: "soon"}).reclaim_deadline is None
    assert _node().reclaim_deadline is None


def test_a_hint_replaces_the_one_before_for_the_same_demand() -> None:
    assert availability_name("capacity:abc") == availability_name("capacity:abc")
    assert availability_name("capacity:abc") != availability_name("capacity:abd")
    assert availability_name("x").startswith("ac-")


def test_a_hint_shows_count_cost_and_conditions_that_a_machine_can_meet() -> None:
    requirements = [
        NodeSelectorRequirement(key="zone", operator=NodeSelectorRequirement.IN, values=["a"]),
        NodeSelectorRequirement(key="rack", operator=NodeSelectorRequirement.SAME),
    ]
    update = AvailableCapacityUpdate(
        supersedes_key="k",
        requirements=requirements,
        resources=Resources(resources={"cpu": "4"}),
        available_count=3,
        confidence=AvailableCapacityUpdate.MEDIUM,
        cost_per_hour=0.25,
    )
    assert availability_object(update)["spec"] == {
        "availability": "Medium",
        "availableCount": 3,
        "cost": "0.250000",
        "resources": {"cpu": "4"},
        "requirements": [{"key": "zone", "operator": "In", "values": ["a"]}],
    }


def test_moments_are_written_to_the_microsecond() -> None:
    assert rfc3339_micro(1.5) == "1970-01-01T00:00:01.500000Z"
