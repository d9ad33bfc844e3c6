"""Properties of anchors for any fleet, groups and scheduler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaddriver.anchors.choose import Anchor, Group, choose
from loaddriver.anchors.free_capacity import Node
from loaddriver.anchors.pod_shape import PodShape
from tests.anchors.anchor_rig import node, shape, waiting

TYPES = st.sampled_from([("a",), ("b",), ("a", "b")])


@st.composite
def fleets(draw: st.DrawFn) -> list[Node]:
    return [
        replace(
            node(
                f"n{index}",
                draw(st.sampled_from(["r1", "r2"])),
                draw(st.integers(-1, 6)),
                draw(st.sampled_from("ab")),
                draw(st.integers(0, 5)),
            ),
            usable=draw(st.sampled_from([True, True, True, False])),
        )
        for index in range(draw(st.integers(1, 4)))
    ]


@st.composite
def arrivals(draw: st.DrawFn) -> list[Group]:
    return [
        waiting(
            f"g{index}",
            draw(st.integers(1, 4)),
            arrived=str(draw(st.integers(0, 1))),
            shape=shape(draw(st.integers(1, 3)), draw(TYPES)),
        )
        for index in range(draw(st.integers(1, 4)))
    ]


@dataclass
class Cluster:
    """The actual state of a cluster: free capacity of nodes, and the pods of each group."""

    nodes: dict[str, Node]
    groups: dict[str, Group]
    anchored: list[str] = field(default_factory=list)

    def bind(self, group: str, to: str) -> None:
        here, pods = self.nodes[to], self.groups[group]
        free = dict(here.free)
        for name, amount in pods.shape.requests:
            free[name] -= amount
        self.nodes[to] = replace(here, free=free)
        self.groups[group] = replace(
            pods,
            pending=pods.pending[1:],
            placed=pods.placed + 1,
            racks=pods.racks | {here.rack},
            started=True,
        )

    def choose(self) -> tuple[Anchor, ...]:
        return choose(self.groups.values(), self.nodes.values()).anchors

    def takes(self, group: Group, name: str) -> bool:
        here = self.nodes[name]
        return here.usable and group.shape.accepts(here.labels) and _holds(here.free, group.shape)

    def schedule(self, group: Group) -> bool:
        """Schedule like kube-scheduler: into the group's rack, or any if it has none yet."""
        for name in sorted(self.nodes, reverse=True):
            allowed = not group.racks or self.nodes[name].rack in group.racks
            if group.pending and allowed and self.takes(group, name):
                self.bind(group.name, name)
                return True
        return False

    def unfinished(self, racks: set[str]) -> list[Group]:
        return [g for g in self.groups.values() if g.started and g.missing and g.racks & racks]


def _holds(free: Mapping[str, int], pod: PodShape) -> bool:
    return all(free.get(name, 0) >= amount for name, amount in pod.requests)


def packable(cluster: Cluster, groups: Sequence[Group]) -> bool:
    """Whether all missing pods fit at the same time, by exhaustive search."""
    pods = [group for group in groups for _ in range(group.missing)]
    if not pods:
        return True
    first, rest = pods[0], [*groups]
    index = rest.index(first)
    for name in cluster.nodes:
        if cluster.nodes[name].rack in first.racks and cluster.takes(first, name):
            after = Cluster(dict(cluster.nodes), dict(cluster.groups))
            after.bind(first.name, name)
            if packable(after, [*rest[:index], after.groups[first.name], *rest[index + 1 :]]):
                return True
    return False


def histories(cluster: Cluster, events: Sequence[int]) -> Iterator[tuple[Anchor, ...]]:
    """Rounds of anchors; after each, a pod is scheduled or a group arrives."""
    for event in events:
        chosen = cluster.choose()
        yield chosen
        for anchor in chosen:
            cluster.bind(anchor.group, anchor.places[0][1])
            cluster.anchored.append(anchor.group)
        names = sorted(cluster.groups)
        cluster.schedule(cluster.groups[names[event % len(names)]])


RANDOM_RUNS = given(
    fleet=fleets(), groups=arrivals(), events=st.lists(st.integers(0, 3), min_size=1, max_size=8)
)


def _cluster(fleet: Sequence[Node], groups: Sequence[Group]) -> Cluster:
    return Cluster({n.name: n for n in fleet}, {g.name: g for g in groups})


@RANDOM_RUNS
def test_a_group_never_gets_two_anchors_nor_one_after_its_first_bound_pod(
    fleet: list[Node], groups: list[Group], events: list[int]
) -> None:
    cluster = _cluster(fleet, groups)
    for chosen in histories(cluster, events):
        assert not any(cluster.groups[anchor.group].started for anchor in chosen)
        assert len({anchor.group for anchor in chosen}) == len(chosen)
    assert len(set(cluster.anchored)) == len(cluster.anchored)


@RANDOM_RUNS
def test_a_nominated_pod_is_pending_and_its_node_matches_is_usable_and_fits_it(
    fleet: list[Node], groups: list[Group], events: list[int]
) -> None:
    cluster = _cluster(fleet, groups)
    for chosen in histories(cluster, events):
        now = Cluster(dict(cluster.nodes), dict(cluster.groups))
        for anchor in chosen:
            for pod, on in anchor.places:
                assert pod in now.groups[anchor.group].pending
                assert anchor.rack == now.nodes[on].rack != ""
                assert now.takes(now.groups[anchor.group], on)
                now.bind(anchor.group, on)


@RANDOM_RUNS
@settings(max_examples=300)
def test_all_unfinished_groups_of_an_anchors_rack_fit_there_at_the_same_time(
    fleet: list[Node], groups: list[Group], events: list[int]
) -> None:
    """So a chosen rack can hold the whole group, and no capacity is reserved twice."""
    cluster = _cluster(fleet, groups)
    for chosen in histories(cluster, events):
        then = Cluster(dict(cluster.nodes), dict(cluster.groups))
        for anchor in chosen:
            then.bind(anchor.group, anchor.places[0][1])
        assert packable(then, then.unfinished({anchor.rack for anchor in chosen}))


@given(fleet=fleets(), groups=arrivals(), started=st.integers(0, 4), data=st.data())
def test_the_choice_does_not_depend_on_the_order_of_groups_and_nodes(
    fleet: list[Node], groups: list[Group], started: int, data: st.DataObject
) -> None:
    cluster = _cluster(fleet, groups)
    for group in list(cluster.groups.values())[:started]:
        cluster.schedule(group)
    nodes, mixed = list(cluster.nodes.values()), list(cluster.groups.values())
    again = choose(data.draw(st.permutations(mixed)), data.draw(st.permutations(nodes)))
    assert again == choose(mixed, nodes)


@given(fleet=fleets(), group=arrivals().map(lambda groups: groups[0]))
def test_a_group_alone_is_anchored_exactly_when_a_rack_can_hold_it(
    fleet: list[Node], group: Group
) -> None:
    cluster = _cluster(fleet, [group])
    racks = {each.rack for each in fleet}
    fits = any(packable(cluster, [replace(group, racks=frozenset({rack}))]) for rack in racks)
    assert bool(cluster.choose()) is fits


@pytest.mark.parametrize("groups", [1, 40])
def test_a_full_fleet_gives_every_waiting_group_an_anchor_or_a_reason(groups: int) -> None:
    fleet = [node(f"n{i}", f"r{i % 3}", 7) for i in range(9)]
    waiters = [waiting(f"g{i}", 1 + i % 5, cpu=1 + i % 2) for i in range(groups)]
    choice = choose(waiters, fleet)
    assert {a.group for a in choice.anchors} | set(choice.no_room) == {g.name for g in waiters}
