"""Shapes of equivalent pods, the Nodes they may use, and the domains that others allow."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.controllers.disruption_cost import (
    eviction_cost,
    node_blocking_annotation,
    pod_blocking_annotation,
)
from bigfleet.controllers.pod_controller.nodes import RawNode, RawUpcomingNode
from bigfleet.controllers.pod_controller.occupancy import AskingPod, Occupancy, PodLocation
from bigfleet.controllers.pod_controller.requests import additional_request, excluded_nodes
from bigfleet.controllers.pod_controller.shapes import Shape, Shapes
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.need import Taint
from tests.controllers.pod_rig import (
    ZONE,
    affinity_terms,
    anti_affinity_terms,
    cluster,
    node,
    peers,
    pod,
    shape,
    spread,
)

RACK = "topology.bigfleet/rack"


@pytest.mark.parametrize(
    ("metadata", "spec"),
    [
        ({"labels": {"app": "other"}}, {}),
        ({"namespace": "other"}, {}),
        ({"annotations": {"controller.kubernetes.io/pod-deletion-cost": "7"}}, {}),
        ({"annotations": {"karpenter.sh/do-not-disrupt": "true"}}, {}),
        ({"ownerReferences": []}, {}),
        ({}, {"priority": 5}),
        ({}, {"nodeSelector": {"zone": "a"}}),
        ({}, {"tolerations": [{"operator": "Exists"}]}),
        ({}, affinity_terms(peers(ZONE))),
        ({}, spread(ZONE)),
        ({}, {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}),
        ({}, {"containers": [{"ports": [{"hostPort": 80}]}]}),
    ],
)
def test_pods_differ_in_shape_by_all_that_placing_them_depends_on(
    metadata: dict[str, Any], spec: dict[str, Any]
) -> None:
    shapes = Shapes()
    assert shapes.of(pod()) is not shapes.of(pod(metadata=metadata, **spec))


def test_pods_that_differ_in_names_alone_share_one_shape() -> None:
    shapes = Shapes()
    own = {"apps.kubernetes.io/pod-index": "1", "statefulset.kubernetes.io/pod-name": "p-1"}
    marks = {"kubectl.kubernetes.io/restartedAt": "now"}
    first = shapes.of(pod(nodeName="n"))
    assert shapes.of(pod()) is first
    labelled = pod(metadata={"labels": {"app": "web", **own}, "annotations": marks})
    assert shapes.of(labelled) is first
    assert len(shapes) == 1


def test_a_shape_is_forgotten_with_the_last_pod_that_has_it() -> None:
    shapes = Shapes()
    kept = shapes.of(pod())
    shapes.of(pod("2"))
    assert (len(shapes), kept.requests["cpu"]) == (1, 1000)


def _rules(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


def _when(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ({}, "abc"),
        ({"nodeSelector": {ZONE: "a"}}, "a"),
        (_rules(_when(ZONE, "In", "a"), _when("cores", "Exists")), "ac"),
        (_rules(_when(ZONE, "NotIn", "a")), "bc"),
        (_rules(_when("cores", "DoesNotExist")), "ab"),
        (_rules(_when("cores", "Gt", "7")), "c"),
        (_rules(_when("cores", "Gt", "8")), ""),
        (_rules(_when("cores", "Lt", "9")), "c"),
        (_rules(_when(ZONE, "Lt", "9")), ""),
        (_rules({}), ""),
        (
            _rules({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}),
            "b",
        ),
    ],
)
def test_node_selector_and_affinity_admit_nodes_as_kubernetes_does(
    spec: dict[str, Any], names: str
) -> None:
    nodes = [node("a"), node("b", zone="b"), node("c", zone="c", labels={"cores": "8"})]
    node_filter = shape(**spec).node_filter
    assert "".join(n.name for n in nodes if node_filter.admit(n.name, n.labels)) == names


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "team", "value": "ml"}, True),
        ({"key": "team", "value": "ml", "effect": "NoSchedule"}, True),
        ({"key": "team", "value": "web"}, False),
        ({"key": "team", "value": "ml", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_taints_keep_pods_away_that_do_not_tolerate_them(
    toleration: dict[str, Any], tolerated: bool
) -> None:
    taint = Taint("team", "ml", "NoSchedule")
    assert not shape().node_filter.tolerate([taint])
    assert shape().node_filter.tolerate([Taint("team", "ml", "PreferNoSchedule")])
    assert shape(tolerations=[toleration]).node_filter.tolerate([taint]) is tolerated


def test_a_node_is_read_as_kube_scheduler_sees_it() -> None:
    raw = {
        "metadata": {
            "name": "n",
            "labels": {"bigfleet.lucy.sh/machine": "n"},
            "annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"},
        },
        "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "4", "memory": "1Gi", "odd/thing": "much"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    read = msgspec.convert(raw, RawNode).read()
    assert (read.ready, read.cordoned, read.ours, read.reclaiming) == (True, True, True, False)
    assert read.allocatable == {"cpu": 4000, "memory": 2**20}
    assert read.taints == (Taint("k", "", "NoSchedule"),)
    assert read.blocking_annotation == "cluster-autoscaler.kubernetes.io/scale-down-disabled=true"
    foreign = msgspec.convert({"metadata": {"name": "n"}}, RawNode).read()
    assert (foreign.ready, foreign.ours) == (False, False)


@pytest.mark.parametrize(
    ("phase", "resources", "labels", "could"),
    [
        ("Provisioning", {"cpu": "4", "memory": "8Gi", "pods": 9}, {"zone": "a"}, True),
        ("Registered", {"cpu": "4", "memory": "8Gi", "pods": 9}, {"zone": "a"}, True),
        ("Ready", {"cpu": "4", "memory": "8Gi", "pods": 9}, {"zone": "a"}, False),
        ("Failed", {"cpu": "4", "memory": "8Gi", "pods": 9}, {"zone": "a"}, False),
        ("Launched", {"cpu": "1", "memory": "8Gi", "pods": 9}, {"zone": "a"}, False),
        ("Launched", {"cpu": "4", "memory": "8Gi", "pods": 9}, {"zone": "b"}, False),
    ],
)
def test_an_upcoming_machine_takes_pods_that_fit(
    phase: str, resources: dict[str, Any], labels: dict[str, str], could: bool
) -> None:
    raw = {
        "metadata": {"name": "m"},
        "spec": {"resources": resources, "labels": labels},
        "status": {"phase": phase},
    }
    state = Occupancy()
    state.set_upcoming("m", msgspec.convert(raw, RawUpcomingNode).read())
    waits = shape("2", nodeSelector={"zone": "a"})
    state.add(PodLocation(waits, ""))
    assert state.unplaced_pods() == {waits: 0 if could else 1}


_ABC = [node("n1", zone="a"), node("n2", zone="b"), node("n3", zone="c")]


def _where(there: Occupancy, looking: Shape) -> list[dict[str, Any]]:
    """Without the newest Nodes."""
    return [dict(each) for each in there.where(looking) if each["key"] != HOSTNAME_LABEL]


def test_who_has_companions_is_to_be_where_they_run() -> None:
    waits, cache = (
        shape(**affinity_terms(peers(ZONE, "cache"))),
        shape(metadata={"labels": {"app": "cache"}}),
    )
    assert _where(cluster(_ABC), waits) == []
    there = cluster(_ABC, (cache, "n1", 2), (cache, "n3", 1))
    assert _where(there, waits) == [{"key": ZONE, "operator": "In", "values": ["a", "c"]}]
    elsewhere = shape(metadata={"labels": {"app": "cache"}, "namespace": "other"})
    assert _where(cluster(_ABC, (elsewhere, "n2", 1)), waits) == []


def test_who_spreads_is_to_be_where_the_skew_leaves_it() -> None:
    """Where the fewest are; with a larger skew, also where one more is no harm. A Node that its
    selector excludes is no domain.
    """
    even = shape(**spread(ZONE))
    there = cluster(_ABC, (even, "n1", 3), (even, "n2", 2), (even, "n3", 2))
    assert _where(there, even) == [{"key": ZONE, "operator": "In", "values": ["b", "c"]}]
    loose = shape(**spread(ZONE, 2))
    assert _where(there, loose) == [{"key": ZONE, "operator": "In", "values": ["a", "b", "c"]}]
    picky = shape(nodeSelector={HOSTNAME_LABEL: "n1"}, **spread(ZONE))
    assert _where(there, picky) == [{"key": ZONE, "operator": "In", "values": ["a"]}]


def test_many_who_spread_are_each_to_be_where_the_next_of_them_may_run() -> None:
    """Before, all were to be where the first may run, and a machine there takes `maxSkew` of them.
    One alone may be in any domain that is open, since another could be cheaper.
    """
    even = shape(**spread(ZONE))
    there = cluster(_ABC, (even, "n1", 2), (even, "n2", 1), (even, "n3", 1), (even, "", 5))
    asking: list[AskingPod] = []
    for _ in range(5):
        asking.append(AskingPod(even, there.where(even, asking)))
    zones = [where["values"] for _, [_, where] in asking]
    assert zones == [["b"], ["c"], ["a"], ["b"], ["c"]]
    alone = cluster(_ABC, (even, "n1", 2), (even, "n2", 1), (even, "n3", 1), (even, "", 1))
    assert _where(alone, even) == [{"key": ZONE, "operator": "In", "values": ["b", "c"]}]


def test_who_spreads_over_more_domains_than_there_are_is_to_be_in_another_one() -> None:
    """Until there are as many, the minimum is zero, and each may have `maxSkew` pods."""
    constraint = {**spread(ZONE, 2)["topologySpreadConstraints"][0], "minDomains": 4}
    wide = shape(topologySpreadConstraints=[constraint])
    there = cluster(_ABC, (wide, "n1", 2), (wide, "n2", 2), (wide, "n3", 1))
    assert _where(there, wide) == [{"key": ZONE, "operator": "NotIn", "values": ["a", "b"]}]
    assert _where(cluster(_ABC, (wide, "n1", 1)), wide) == []


def test_who_avoids_others_is_to_be_where_they_are_not() -> None:
    alone = shape(**anti_affinity_terms(peers(ZONE)))
    there = cluster(_ABC, (alone, "n1", 1), (alone, "n2", 1))
    assert _where(there, alone) == [{"key": ZONE, "operator": "NotIn", "values": ["a", "b"]}]


def test_hostname_domains_are_omitted_since_a_new_node_is_a_new_domain() -> None:
    spreads, avoids = (
        shape(**spread(HOSTNAME_LABEL)),
        shape(**anti_affinity_terms(peers(HOSTNAME_LABEL))),
    )
    there = cluster(_ABC, (spreads, "n1", 2), (avoids, "n2", 1))
    assert _where(there, spreads) == []
    assert _where(there, avoids) == []


def test_a_new_node_may_have_as_many_pods_of_a_kind_as_their_skew_allows() -> None:
    """One if they avoid each other. Where each Node has one at least, a new one may have one more
    than where some have none.
    """
    spreads = shape(**spread(HOSTNAME_LABEL))
    avoids = shape(**anti_affinity_terms(peers(HOSTNAME_LABEL)))
    assert cluster(_ABC).most_on_new_node(avoids) == 1
    assert cluster(_ABC).most_on_new_node(shape(**anti_affinity_terms(peers(ZONE)))) is None
    full = cluster(_ABC, (spreads, "n1", 1), (spreads, "n2", 1))
    assert full.most_on_new_node(spreads) == 1
    assert full.most_on_new_node(shape(**spread(HOSTNAME_LABEL, 2))) == 2
    assert full.most_on_new_node(shape(**spread(ZONE))) is None
    even = cluster(_ABC, *((spreads, name, 1) for name in ("n1", "n2", "n3")))
    assert even.most_on_new_node(spreads) == 2
    first = {"requirements": [], "antiAffinity": {"topologyKeys": [ZONE]}}
    alone = additional_request(first, [], alone=True)
    assert alone["antiAffinity"]["topologyKeys"] == [HOSTNAME_LABEL]
    assert "antiAffinity" not in additional_request(first, [], alone=False)


def test_running_pods_close_domains_to_those_that_spread_or_keep_apart_by_domain() -> None:
    plain, by_node = shape(), shape(**anti_affinity_terms(peers(HOSTNAME_LABEL)))
    by_zone, near = shape(**anti_affinity_terms(peers(ZONE))), shape(**affinity_terms(peers(ZONE)))
    outlook = cluster(_ABC).outlooks()
    assert [outlook(each).any_domain for each in (plain, by_node)] == [True, True]
    spreads = shape(**spread(ZONE))
    assert [outlook(each).any_domain for each in (by_zone, near, spreads)] == [False] * 3


def test_the_newest_nodes_are_named_as_no_help() -> None:
    """So that what came for an earlier request does not count for a later one."""
    nodes = [node(f"n{number}", created=f"2026-01-01T00:00:{number:02d}Z") for number in range(9)]
    [newest] = cluster(nodes).where(shape())
    named = ["n4", "n5", "n6", "n7", "n8"]
    assert newest == {"key": HOSTNAME_LABEL, "operator": "NotIn", "values": named}
    assert cluster([]).where(shape()) == []


def test_a_request_follows_the_skew_and_excludes_the_nodes_that_it_excluded_before() -> None:
    """Else a Node that joins would change it, and it would give up the machine on its way to it."""
    even, old = shape(**spread(ZONE)), {"key": HOSTNAME_LABEL, "operator": "NotIn", "values": ["o"]}
    first = {"requirements": [{"key": "kind", "operator": "Exists"}]}
    where = [old, {"key": ZONE, "operator": "In", "values": ["b"]}]
    made = additional_request(first, where, alone=False)
    there = cluster(_ABC, (even, "n1", 3), (even, "n2", 2), (even, "n3", 2))
    domains = {"key": ZONE, "operator": "In", "values": ["b", "c"]}
    assert there.where_else(even, excluded_nodes(first, made)) == [old, domains]
    assert there.where_else(shape(), []) == []


def test_who_must_run_on_the_very_node_of_others_is_helped_by_no_machine() -> None:
    waits = shape(**affinity_terms(peers(HOSTNAME_LABEL)))
    assert not cluster(_ABC).pinned_to_full_node(waits)
    assert cluster(_ABC, (waits, "n1", 1)).pinned_to_full_node(waits)
    by_zone = shape(**affinity_terms(peers(ZONE)))
    assert not cluster(_ABC, (by_zone, "n1", 1)).pinned_to_full_node(by_zone)


def test_a_gang_is_unplaced_until_one_of_it_runs() -> None:
    gang = shape(**affinity_terms(peers(ZONE)))
    assert cluster(_ABC, (gang, "", 3)).is_unplaced_gang(gang)
    assert not cluster(_ABC, (gang, "n1", 1)).is_unplaced_gang(gang)
    follower = shape(**affinity_terms(peers(ZONE, "cache")))
    assert not cluster(_ABC).is_unplaced_gang(follower)


_SHAPES = [
    shape(metadata={"namespace": namespace, "labels": labels})
    for namespace in ("a", "b")
    for labels in ({"app": "x"}, {"app": "y"}, {"app": "x", "tier": "z"}, {})
]
_SCOPES: list[dict[str, Any]] = [{}, {"namespaces": ["a", "b"]}, {"namespaceSelector": {}}]
_TERMS = [
    affinity_terms({"topologyKey": ZONE, "labelSelector": selector, **more})
    for selector in (
        {"matchLabels": {"app": "x"}},
        {"matchLabels": {"app": "x", "tier": "z"}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]},
        {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
        {},
        None,
    )
    for more in _SCOPES
]
_PLACES = st.builds(
    PodLocation,
    st.sampled_from(_SHAPES),
    st.sampled_from(["n1", "n2", "n3", ""]),
    st.booleans(),
)


@given(st.lists(_PLACES, max_size=30), st.data())
def test_counts_are_those_of_the_pods_that_are_there(
    places: list[PodLocation], data: st.DataObject
) -> None:
    """However pods come and go, and whatever a term selects: the same as looking at each pod."""
    there = cluster(_ABC)
    for place in places:
        there.add(place)
    gone = data.draw(st.permutations(places))[: len(places) // 2]
    left = Counter(map(id, places)) - Counter(map(id, gone))
    for place in gone:
        there.remove(place)
    by_id = {id(place): place for place in places}
    kept = [by_id[each] for each in left.elements()]
    for spec in _TERMS:
        looking = shape(metadata={"namespace": "a"}, **spec)
        [term] = looking.affinity_terms
        expected = {
            there.nodes[p.node].labels[ZONE]
            for p in kept
            if p.node and not p.terminating and term.include(p.shape)
        }
        named = {value for each in _where(there, looking) for value in each["values"]}
        assert named == expected
    assert there.waiting == Counter(p.shape for p in kept if not p.node)


@pytest.mark.parametrize(
    ("priority", "annotations", "cost"),
    [
        (0, {}, 1.0),
        (2**25, {}, 2.0),
        (2_000_000_000, {}, 10.0),
        (-(2**31), {}, -10.0),
        (0, {"controller.kubernetes.io/pod-deletion-cost": str(2**27)}, 2.0),
        (0, {"controller.kubernetes.io/pod-deletion-cost": "dear"}, 1.0),
        (0, {"bigfleet.lucy.sh/reclamation-penalty": "12.5"}, 13.5),
        (0, {"bigfleet.lucy.sh/reclamation-penalty": "much"}, 1.0),
    ],
)
def test_an_eviction_costs_as_in_karpenter_and_the_penalty_in_dollars(
    priority: int, annotations: dict[str, str], cost: float
) -> None:
    assert eviction_cost(priority, annotations) == cost


def test_marks_of_three_autoscalers_forbid_a_disruption() -> None:
    assert pod_blocking_annotation({"bigfleet.lucy.sh/do-not-disrupt": "true"})
    assert pod_blocking_annotation({"karpenter.sh/do-not-disrupt": "true"})
    assert pod_blocking_annotation({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})
    assert not pod_blocking_annotation({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"})
    assert not pod_blocking_annotation({"karpenter.sh/do-not-disrupt": "false"})
    assert node_blocking_annotation({"karpenter.sh/do-not-disrupt": "true"})
    assert not node_blocking_annotation({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})
