"""Chooses which groups get an anchor, and where. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from loaddriver.anchors.free_capacity import FreeCapacity, Node
from loaddriver.anchors.pod_shape import PodShape


class PodRef(NamedTuple):
    """A reference to a pod; a later pod of the same name has another UID."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class Group:
    """The state of a group. `arrived` is the creation time of its first pod, sortable as text.

    `size` is the planned number of pods; `pending` are unbound ones, oldest first, of which
    kube-scheduler has not yet tried `untried`; `racks` are those of its bound pods; `placed` counts
    bound and succeeded pods. Groups that are `started` (had a bound pod) or have a rack `nominated`
    get no anchor.
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
        """Pods that still need capacity."""
        return max(0, self.size - self.placed)


@dataclass(frozen=True)
class Anchor:
    """A node to nominate for each of these pods; all nodes are in `rack`."""

    group: str
    rack: str
    places: tuple[tuple[PodRef, str], ...]


@dataclass(frozen=True)
class Choice:
    """The anchors to set, and in `no_room` why each other pending group gets none."""

    anchors: tuple[Anchor, ...]
    no_room: dict[str, str]


def choose(groups: Iterable[Group], nodes: Iterable[Node]) -> Choice:
    """Choose an anchor for each pending group that fits in one rack as a whole.

    Groups with a pod that kube-scheduler has not tried are left to kube-scheduler; if these are
    all, as most of the time, no capacity is computed. Groups are served in order of arrival, then
    by name. Capacity is reserved for the missing pods of started groups in their racks, and of
    nominated groups in the nominated rack. A group that fits nowhere reserves nothing: racks kept
    for it would stay empty while others could run.
    """
    known = list(groups)
    waiting = [g for g in known if g.pending and not g.started and not g.nominated]
    no_room = {
        group.name: f"kube-scheduler has not yet tried {group.untried} of its pods"
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
    """The rack with the least free capacity that holds the group, ties by name."""
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
            f"none of the {capacity.usable_nodes} Ready, schedulable nodes in racks matches its "
            "node affinity"
        )
    if not any(nodes.values()):
        return (
            f"none of the {len(nodes)} nodes that match its node affinity fits one pod beyond what "
            "is reserved for unfinished groups"
        )
    racks = capacity.pods_per_rack(group.shape)
    if not racks:
        return "every rack that it could use is too small for the groups started there"
    pods, rack = max((pods, rack) for rack, pods in racks.items())
    return (
        f"no rack fits all {group.missing} pods: the largest, {rack}, fits {pods} beyond what is "
        "reserved for unfinished groups"
    )
