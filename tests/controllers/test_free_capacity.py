"""Where kube-scheduler would put a pod: the columns against looking at every Node and pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.controllers.pod_controller.free_capacity import (
    NOWHERE,
    Count,
    FreeCapacity,
    has_room_now,
)
from bigfleet.controllers.pod_controller.nodes import Node
from bigfleet.controllers.pod_controller.occupancy import PodLocation
from bigfleet.controllers.pod_controller.shapes import Peers, Shape
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.need import Taint
from tests.controllers.pod_rig import (
    ZONE,
    affinity_terms,
    anti_affinity_terms,
    cluster,
    node,
    peers,
    shape,
    spread,
)

_TAINT = Taint("team", "ml", "NoSchedule")
_NODES = [
    node("a1", "8", "a"),
    node("a2", "4", "a", labels={"disk": "ssd"}),
    node("b1", "8", "b", labels={"disk": "ssd"}),
    node("b2", "16", "b", taints=(_TAINT,)),
    node("c1", "6", "c"),
    node("c2", "6", "c", cordoned=True),
    Node("lost", {}, {"cpu": 8000, "memory": 2**24, "pods": 110_000}),
]
_CACHE = {"labels": {"app": "cache"}}


def _either(**spec: Any) -> Iterator[Shape]:
    """The same of two workloads."""
    yield shape("500m", **spec)
    yield shape("2", metadata=_CACHE, **spec)


_SHAPES = [
    *_either(),
    *_either(nodeSelector={"disk": "ssd"}),
    *_either(nodeSelector={HOSTNAME_LABEL: "c1"}),
    *_either(tolerations=[{"operator": "Exists"}]),
    *_either(containers=[{"resources": {"requests": {"cpu": "1"}}, "ports": [{"hostPort": 80}]}]),
    *_either(**affinity_terms(peers(ZONE))),
    *_either(**affinity_terms(peers(ZONE, "cache"))),
    *_either(**anti_affinity_terms(peers(HOSTNAME_LABEL))),
    *_either(**anti_affinity_terms(peers(ZONE, "cache"))),
    *_either(**spread(ZONE)),
    *_either(**spread(ZONE, 2, minDomains=4)),
    *_either(**spread(HOSTNAME_LABEL, 1, nodeTaintsPolicy="Honor")),
    *_either(**spread(ZONE, 1, nodeAffinityPolicy="Ignore"), nodeSelector={"disk": "ssd"}),
    shape(
        "1",
        metadata={"namespace": "other"},
        **anti_affinity_terms(peers(ZONE, namespaces=["team"])),
    ),
]


class Board:
    """The same by looking at every Node and every pod."""

    def __init__(self, pods: Sequence[tuple[int, int]], gone: set[int]) -> None:
        self.on = [Counter[Shape]() for _ in _NODES]
        self.gone = gone
        for which, where in pods:
            self.on[where][_SHAPES[which]] += 1

    def allows(self, shape: Shape, number: int) -> bool:
        here = _NODES[number]
        return (
            number not in self.gone
            and not here.cordoned
            and shape.node_filter.admit(here.name, here.labels)
            and shape.node_filter.tolerate(here.taints)
            and all(
                amount <= self.free(number).get(name, 0) for name, amount in shape.requests.items()
            )
            and not any(shape.host_ports & other.host_ports for other in self.on[number])
            and all(self._is_near(shape, term, here) for term in shape.affinity_terms)
            and not self._is_repelled(shape, here)
            and self._stays_even(shape, here)
        )

    def free(self, number: int) -> Mapping[str, int]:
        left = dict(_NODES[number].allocatable)
        for other, count in self.on[number].items():
            for name, amount in other.requests.items():
                left[name] = left.get(name, 0) - amount * count
        return left

    def _is_near(self, shape: Shape, term: Peers, here: Node) -> bool:
        counts = self._domains(term)
        if term.topology_key not in here.labels:
            return False
        if not counts and term.include(shape):
            return True
        return counts[here.labels[term.topology_key]] > 0

    def _is_repelled(self, shape: Shape, here: Node) -> bool:
        for term in shape.anti_affinity_terms:
            if self._domains(term)[here.labels.get(term.topology_key, "")]:
                return True
        for number, pods in enumerate(self.on):
            for other in pods:
                for term in other.anti_affinity_terms:
                    domain = _NODES[number].labels.get(term.topology_key)
                    same = domain is not None and domain == here.labels.get(term.topology_key)
                    if same and term.include(shape):
                        return True
        return False

    def _stays_even(self, shape: Shape, here: Node) -> bool:
        for rule in shape.spread:
            key = rule.peers.topology_key
            if key not in here.labels:
                return False
            domains = {
                each.labels[key]
                for number, each in enumerate(_NODES)
                if number not in self.gone
                and key in each.labels
                and (
                    not rule.honors_node_affinity or shape.node_filter.admit(each.name, each.labels)
                )
                and (not rule.honors_node_taints or shape.node_filter.tolerate(each.taints))
            }
            counts = self._domains(rule.peers)
            enough = len(domains) >= rule.min_domains
            least = min((counts[domain] for domain in domains), default=0) if enough else 0
            if counts[here.labels[key]] + rule.peers.include(shape) - least > rule.max_skew:
                return False
        return True

    def _domains(self, term: Peers) -> Counter[str]:
        counts = Counter[str]()
        for number, pods in enumerate(self.on):
            for other, count in pods.items():
                domain = _NODES[number].labels.get(term.topology_key)
                if domain is not None and term.include(other):
                    counts[domain] += count
        return counts


_WHERE = st.integers(0, len(_NODES) - 1)
_PODS = st.lists(st.tuples(st.integers(0, len(_SHAPES) - 1), _WHERE), max_size=25)


@given(_PODS, _PODS, st.sets(_WHERE, max_size=2), st.sets(st.integers(0, len(_SHAPES) - 1)))
def test_a_pod_is_placed_where_every_rule_allows_or_nowhere(
    before: list[tuple[int, int]],
    later: list[tuple[int, int]],
    gone: set[int],
    movable: set[int],
) -> None:
    """Whatever runs, whatever comes later, and whichever Nodes go."""
    pods = [Count(_SHAPES[which], where, 1) for which, where in before]
    capacity = FreeCapacity(_NODES, pods, [_SHAPES[number] for number in sorted(movable)])
    for number in gone:
        capacity.close(number)
    later = [each for each in later if each[0] in movable]
    for which, where in later:
        capacity.change(_SHAPES[which], where, 1)
    board = Board([*before, *later], gone)
    for which in movable:
        allowed = [n for n in range(len(_NODES)) if board.allows(_SHAPES[which], n)]
        chosen = capacity.place(_SHAPES[which])
        assert (chosen in allowed) if allowed else (chosen == NOWHERE)
    for which, where in later:
        capacity.change(_SHAPES[which], where, -1)
    for number in gone:
        capacity.reopen(number, takes_pods=not _NODES[number].cordoned)
    board = Board(before, set())
    for which in movable:
        allowed = [n for n in range(len(_NODES)) if board.allows(_SHAPES[which], n)]
        assert (capacity.place(_SHAPES[which]) in allowed) == bool(allowed)


def test_of_fitting_nodes_the_least_allocated_and_most_balanced_is_chosen() -> None:
    small, web = shape("1"), shape("100m")
    nodes = [node("full"), node("empty"), node("half")]
    capacity = FreeCapacity(nodes, [Count(small, 0, 7), Count(small, 2, 4)], [small, web])
    assert nodes[capacity.place(web)].name == "empty"
    for _ in range(5):
        capacity.change(small, 1, 1)
    assert nodes[capacity.place(web)].name == "half"


def test_a_waiting_pod_has_room_where_running_and_terminating_pods_leave_enough() -> None:
    small, large = shape("2"), shape("6")
    nodes = [node("full"), node("half")]
    occupancy = cluster(nodes, (small, "full", 3), (small, "half", 1), (large, "", 1))
    assert has_room_now(occupancy)(large)
    occupancy.add(PodLocation(shape("1"), "half", terminating=True))
    assert not has_room_now(occupancy)(large)


def test_room_on_a_pod_s_nominated_node_is_kept_from_others_of_no_higher_priority() -> None:
    """As by kube-scheduler: who waits for such room would wait in vain."""
    large, urgent = shape("6"), shape("6", priority=9)
    occupancy = cluster([node("free")], (large, "", 2), (urgent, "", 1))
    has_room = has_room_now(occupancy, [(large, "free")])
    assert not has_room(large)
    assert has_room(urgent)


@pytest.mark.parametrize(("zone", "expected"), [("a", "a2"), ("b", None)])
def test_a_pod_with_volumes_stays_in_the_zone_that_it_comes_from(
    zone: str, expected: str | None
) -> None:
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    keeps = shape("2", volumes=[claim])
    nodes = [node("from", zone=zone), node("a2", zone="a"), node("c1", "32", zone="c")]
    capacity = FreeCapacity(nodes, [Count(keeps, 0, 1)], [keeps])
    capacity.close(0)
    where = capacity.place(keeps, 0)
    assert (nodes[where].name if where != NOWHERE else None) == expected
