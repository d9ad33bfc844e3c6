"""Which groups get an anchor now, and where. Pure: the same view gives the same anchors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from loaddriver.anchors.free_capacity import FreeCapacity, Node
from loaddriver.anchors.pod_shape import PodShape


class PodRef(NamedTuple):
    """Which pod; a later pod of the same name has another UID."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class Group:
    """A group now. `arrived` is the creation of its first pod, in a form that sorts by time.

    `size` is how many pods were planned; `pending` are unbound ones, the oldest first, of which
    kube-scheduler has not yet found `untried` unschedulable; `racks` are those where its bound pods
    run, `placed` counts these and the ones that have done their work.
    `started` groups have had a bound pod at some time, and so get no anchor any more; nor do those
    for which the rack `nominated` has been nominated.
    """

    name: str
    arrived: str
    size: int
    shape: PodShape
    pending: tuple[PodRef, ...] = ()
    untried: int = 0
    racks: frozenset[str] = frozenset()
    placed: int = 0
    started: bool = False
    nominated: str = ""

    @property
    def missing(self) -> int:
        """Pods that still need room."""
        return max(0, self.size - self.placed)


@dataclass(frozen=True)
class Anchor:
    """Nominate for each of these pods its node; all nodes are in `rack`."""

    group: str
    rack: str
    places: tuple[tuple[PodRef, str], ...]


@dataclass(frozen=True)
class Choice:
    """The anchors to set now; `no_room` says why each other group that waits gets none."""

    anchors: tuple[Anchor, ...]
    no_room: dict[str, str]


def choose(groups: Iterable[Group], nodes: Iterable[Node]) -> Choice:
    """One anchor for each group without a bound pod that a rack can hold as a whole.

    Groups with a pod that kube-scheduler has not tried are left to it, most of the time all of
    them, and then nobody's room is counted: anchors are for those that it has found no place for.
    First come, first served, then by name. A started group keeps the room for its missing pods in
    its racks until it is complete, and a nominated one in that rack. A group that fits nowhere
    keeps nothing: racks that wait for it would stay empty while others could run.
    """
    known = list(groups)
    waiting = [g for g in known if g.pending and not g.started and not g.nominated]
    no_room = {
        group.name: f"kube-scheduler has yet to try {group.untried} of its pods"
        for group in waiting
        if group.untried
    }
    eligible = sorted((group for group in waiting if not group.untried), key=_queue_order)
    if not eligible:
        return Choice((), no_room)
    capacity = FreeCapacity(nodes)
    in_progress = (g for g in known if (g.started or g.nominated) and g.missing)
    for group in sorted(in_progress, key=_queue_order):
        capacity.reserve(group.shape, group.missing, group.racks or {group.nominated})
    anchors: list[Anchor] = []
    for group in eligible:
        rack = _best_rack(capacity, group)
        if rack is None:
            no_room[group.name] = _why_not(capacity, group)
        else:
            anchors.append(_make_anchor(capacity, group, rack))
    return Choice(tuple(anchors), no_room)


def _queue_order(group: Group) -> tuple[str, str]:
    return group.arrived, group.name


def _best_rack(capacity: FreeCapacity, group: Group) -> str | None:
    """Of those that can hold the group, the rack with the least room, first by name of equals."""
    enough = [
        (pods, rack)
        for rack, pods in capacity.pods_per_rack(group.shape).items()
        if pods >= max(1, group.missing)
    ]
    return min(enough)[1] if enough else None


def _make_anchor(capacity: FreeCapacity, group: Group, rack: str) -> Anchor:
    places = []
    for pod in group.pending[: group.missing]:
        node = capacity.tightest_node(group.shape, rack)
        capacity.take(group.shape, node)
        places.append((pod, node))
    capacity.reserve(group.shape, group.missing - len(places), {rack})
    return Anchor(group.name, rack, tuple(places))


def _why_not(capacity: FreeCapacity, group: Group) -> str:
    nodes = capacity.pods_per_node(group.shape)
    if not nodes:
        return (
            f"none of the {capacity.usable_nodes} Ready, schedulable nodes in racks "
            "satisfies its node "
            "affinity"
        )
    if not any(nodes.values()):
        return (
            f"none of the {len(nodes)} nodes that satisfy its node affinity has room for one pod "
            "beside what unfinished groups still need"
        )
    racks = capacity.pods_per_rack(group.shape)
    if not racks:
        return "every rack that it could use is too small for the groups already started there"
    pods, rack = max((pods, rack) for rack, pods in racks.items())
    return (
        f"no rack can hold all {group.missing} pods: the roomiest, {rack}, has room for {pods} "
        "beside what unfinished groups still need there"
    )
