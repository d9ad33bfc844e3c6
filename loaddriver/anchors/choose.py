"""Which groups get an anchor now, and where. Pure: the same view gives the same anchors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from loaddriver.anchors.room import Node, Room
from loaddriver.anchors.shape import Shape


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
    `started` groups have had a bound pod at some time, and so get no anchor any more.
    """

    name: str
    arrived: str
    size: int
    shape: Shape
    pending: tuple[PodRef, ...] = ()
    untried: int = 0
    racks: frozenset[str] = frozenset()
    placed: int = 0
    started: bool = False

    @property
    def missing(self) -> int:
        """Pods that still need room."""
        return max(0, self.size - self.placed)


@dataclass(frozen=True)
class Anchor:
    """Bind this pod to this node."""

    group: str
    pod: PodRef
    node: str
    rack: str


@dataclass(frozen=True)
class Choice:
    """The anchors to bind now; `no_room` says why each other group that waits gets none."""

    anchors: tuple[Anchor, ...]
    no_room: dict[str, str]


def choose(groups: Iterable[Group], nodes: Iterable[Node]) -> Choice:
    """One anchor for each group without a bound pod that a rack can hold as a whole.

    A pod that kube-scheduler has not tried may be on its way to a node, unseen by us: an anchor for
    its group could split the group over two racks. So those groups are left to kube-scheduler; most
    of the time that is all of them, and then nobody's room is counted.
    First come, first served, then by name. A started group keeps the room for its missing pods in
    its racks until it is complete. A group that fits nowhere keeps nothing: racks that wait for it
    would stay empty while others could run.
    """
    known = list(groups)
    waiting = [group for group in known if group.pending and not group.started]
    no_room = {
        group.name: f"kube-scheduler has yet to try {group.untried} of its pods"
        for group in waiting
        if group.untried
    }
    asking = sorted((group for group in waiting if not group.untried), key=_turn)
    if not asking:
        return Choice((), no_room)
    room = Room(nodes)
    for group in sorted((group for group in known if group.started and group.missing), key=_turn):
        room.promise(group.shape, group.missing, group.racks)
    anchors: list[Anchor] = []
    for group in asking:
        rack = _best_rack(room, group)
        if rack is None:
            no_room[group.name] = _why_not(room, group)
        else:
            anchors.append(_anchored(room, group, rack))
    return Choice(tuple(anchors), no_room)


def _turn(group: Group) -> tuple[str, str]:
    return group.arrived, group.name


def _best_rack(room: Room, group: Group) -> str | None:
    """Of those that can hold the group, the rack with the least room, first by name of equals."""
    enough = [
        (pods, rack)
        for rack, pods in room.in_racks(group.shape).items()
        if pods >= max(1, group.missing)
    ]
    return min(enough)[1] if enough else None


def _anchored(room: Room, group: Group, rack: str) -> Anchor:
    node = room.fullest_node(group.shape, rack)
    room.take(group.shape, node)
    room.promise(group.shape, group.missing - 1, {rack})
    return Anchor(group.name, group.pending[0], node, rack)


def _why_not(room: Room, group: Group) -> str:
    nodes = room.on_nodes(group.shape)
    if not nodes:
        return (
            f"none of the {room.usable_nodes} Ready, schedulable nodes in racks satisfies its node "
            "affinity"
        )
    if not any(nodes.values()):
        return (
            f"none of the {len(nodes)} nodes that satisfy its node affinity has room for one pod "
            "beside what unfinished groups still need"
        )
    racks = room.in_racks(group.shape)
    if not racks:
        return "every rack that it could use is too small for the groups already started there"
    pods, rack = max((pods, rack) for rack, pods in racks.items())
    return (
        f"no rack can hold all {group.missing} pods: the roomiest, {rack}, has room for {pods} "
        "beside what unfinished groups still need there"
    )
