"""Matching of node affinity and computation of requests."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bigfleet.model import resources
from loaddriver.anchors.objects import requests_of, shape_of, usable
from loaddriver.anchors.pod_shape import PodShape, Requirement
from loaddriver.plan.manifests import INSTANCE_TYPE_KEY, ZONE_KEY, workload_body
from loaddriver.plan.records import Workload
from loaddriver.profile.loading import load_catalog
from loaddriver.record.watched import Pod
from tests.anchors.anchor_rig import kube_node, pod

PROFILES = Path(__file__).parents[2] / "profiles"
LABELS = {"type": "a", "generation": "5", "odd": "x"}


@pytest.mark.parametrize(
    ("requirement", "accepted"),
    [
        (Requirement("type", "In", ("a", "b")), True),
        (Requirement("type", "In", ("b",)), False),
        (Requirement("absent", "In", ("b",)), False),
        (Requirement("type", "NotIn", ("b",)), True),
        (Requirement("type", "NotIn", ("a",)), False),
        (Requirement("absent", "NotIn", ("a",)), True),
        (Requirement("type", "Exists"), True),
        (Requirement("absent", "Exists"), False),
        (Requirement("absent", "DoesNotExist"), True),
        (Requirement("type", "DoesNotExist"), False),
        (Requirement("generation", "Gt", ("4",)), True),
        (Requirement("generation", "Gt", ("5",)), False),
        (Requirement("generation", "Lt", ("6",)), True),
        (Requirement("absent", "Lt", ("6",)), False),
        (Requirement("odd", "Gt", ("4",)), False),
    ],
)
def test_requirements_match_as_in_kube_scheduler(requirement: Requirement, accepted: bool) -> None:
    assert requirement.accepts(LABELS) is accepted


def test_terms_are_alternatives_and_their_requirements_hold_together() -> None:
    is_a, is_b = Requirement("type", "In", ("a",)), Requirement("type", "In", ("b",))
    old = Requirement("generation", "Lt", ("5",))
    assert PodShape((), node_terms=((is_b,), (is_a,))).accepts(LABELS)
    assert not PodShape((), node_terms=((is_a, old), (is_b,))).accepts(LABELS)


def test_no_terms_accept_all_nodes_and_an_empty_term_accepts_none() -> None:
    assert PodShape(()).accepts(LABELS)
    assert not PodShape((), node_terms=((),)).accepts(LABELS)


def test_the_node_selector_holds_beside_the_affinity() -> None:
    assert PodShape((), (("type", "a"),)).accepts(LABELS)
    assert not PodShape((), (("type", "b"),)).accepts(LABELS)


def test_an_overcommitted_node_fits_no_pod() -> None:
    assert PodShape((("cpu", 2),)).fitting_pods({"cpu": -5}) == 0


def test_a_pod_counts_its_containers_the_greatest_init_container_overhead_and_a_slot() -> None:
    spec = {
        "containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}, {}],
        "initContainers": [{"resources": {"requests": {"cpu": "3", "memory": "1Mi"}}}],
        "overhead": {"cpu": "100m"},
    }
    found = resources.texts(requests_of(pod("p", spec=spec).spec))
    assert found == {"cpu": "3100m", "memory": "1048576Ki", "pods": "1"}


def test_requests_are_cached_by_everything_that_they_depend_on() -> None:
    """Containers, init containers and overhead."""
    one, two = ([{"resources": {"requests": {"cpu": cpu}}}] for cpu in ("1", "2"))
    specs: list[dict[str, object]] = [
        {"containers": one},
        {"containers": two},
        {"containers": one, "initContainers": two},
        {"containers": one, "overhead": {"cpu": "500m"}},
    ]
    for _ in range(2):
        found = [requests_of(pod("p", spec=spec).spec)["cpu"] for spec in specs]
        assert found == [1000, 2000, 2000, 1500]


def test_the_shape_of_the_loads_own_gangs_is_read_from_their_manifests() -> None:
    """The anchor requires of a node what the manifest requires."""
    catalog = load_catalog(PROFILES, "dev-50")
    archetype = next(each for each in catalog.archetypes if each.gang)
    workload = Workload(
        cluster=0, step=1, namespace="t", name="w", archetype=archetype.name, kind=archetype.kind,
        size=0, replicas=4, priority=0, spread=False, group="w", topology="sameRack",
    )  # fmt: skip
    template = workload_body(workload, catalog)["spec"]["template"]
    template["metadata"] |= {"name": "w-0", "uid": "u"}
    size = archetype.sizes[0]
    labels = {INSTANCE_TYPE_KEY: size.instance_types[0], ZONE_KEY: archetype.zones[0]}
    found = shape_of(msgspec.json.decode(msgspec.json.encode(template), type=Pod).spec)
    assert found.accepts(labels)
    assert not found.accepts({**labels, INSTANCE_TYPE_KEY: "another"})
    assert not found.accepts({**labels, ZONE_KEY: "elsewhere"})
    assert dict(found.requests)["cpu"] == size.cpu_millicores
    assert dict(found.requests)["memory"] == size.memory_mebibytes * 1024


@pytest.mark.parametrize(
    ("spec", "takes_pods"),
    [
        ({}, True),
        ({"unschedulable": True}, False),
        ({"taints": [{"key": "k", "effect": "NoSchedule"}]}, False),
        ({"taints": [{"key": "k", "effect": "NoExecute"}]}, False),
        ({"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}, True),
    ],
)
def test_cordoned_and_tainted_nodes_get_no_anchor(
    spec: dict[str, object], takes_pods: bool
) -> None:
    assert usable(kube_node("n", spec=spec)) is takes_pods


def test_a_node_is_usable_only_while_ready() -> None:
    assert not usable(kube_node("n", ready="Unknown"))
