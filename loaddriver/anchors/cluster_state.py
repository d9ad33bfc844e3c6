"""The state of one cluster from its watches: groups, bindings and free capacity. Pure.

A known binding is never reverted, as a watch may deliver an older state of the pod later.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bigfleet.kube.watch import Changed, Listed
from loaddriver.anchors.choose import Anchor, Group, PodRef
from loaddriver.anchors.free_capacity import Node
from loaddriver.anchors.objects import allocatable_of, requests_of, shape_of, usable
from loaddriver.anchors.outcomes import OutcomeRecorder
from loaddriver.anchors.pod_shape import PodShape
from loaddriver.plan.manifests import GROUP_LABEL, RACK_KEY
from loaddriver.record.watched import Node as KubeNode
from loaddriver.record.watched import Pod


@dataclass(slots=True)
class _PodState:
    """A pod. `group` is "" outside planned groups; a `terminating` pod still uses its requests."""

    ref: PodRef
    group: str
    created: str
    requests: Mapping[str, int]
    node: str = ""
    unschedulable: bool = False
    terminating: bool = False
    ended: bool = False


class ClusterState:
    """`groups` maps each same-rack group of the plan to its number of pods.

    While any group waits, groups and nodes are read again every second, and most have not changed.
    So their views are cached until they change, and complete groups are no longer iterated.
    """

    def __init__(self, groups: Mapping[str, int], recorder: OutcomeRecorder) -> None:
        self._sizes = dict(groups)
        self._recorder = recorder
        self._pods: dict[str, _PodState] = {}
        self._members: defaultdict[str, dict[str, _PodState]] = defaultdict(dict)
        self._shapes: dict[str, PodShape] = {}
        self._succeeded: Counter[str] = Counter()
        self._nodes: dict[str, tuple[KubeNode, dict[str, int]]] = {}
        self._used: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._racks: dict[str, str] = {}
        self._nominated: dict[str, tuple[Anchor, int]] = {}
        self._unstarted: set[str] = set()
        self._unfinished: dict[str, None] = {}
        self._group_views: dict[str, Group] = {}
        self._node_views: dict[str, Node] = {}

    def take_pods(self, change: Listed[Pod] | Changed[Pod], now_micros: int) -> None:
        """Apply an event of the watch on all pods."""
        if isinstance(change, Changed):
            self._observe(change.item, now_micros)
            if change.deleted:
                self._remove(change.item.metadata.uid)
            return
        for pod in change.items:
            self._observe(pod, now_micros)
        for uid in self._pods.keys() - {pod.metadata.uid for pod in change.items}:
            self._remove(uid)

    def take_nodes(self, change: Listed[KubeNode] | Changed[KubeNode]) -> None:
        """Apply an event of the watch on all nodes."""
        if isinstance(change, Listed):
            self._nodes.clear()
            self._node_views.clear()
            for node in change.items:
                self._set_node(node)
        elif change.deleted:
            self._nodes.pop(change.item.metadata.name, None)
            self._node_views.pop(change.item.metadata.name, None)
        else:
            self._set_node(change.item)

    def nominated(self, anchor: Anchor, now_micros: int) -> None:
        """Record that the nominations of a group are being sent."""
        self._nominated[anchor.group] = (anchor, now_micros)
        self._changed(anchor.group)

    def expire_nominations(self, before_micros: int) -> list[Anchor]:
        """Drop nominations made before then; return those of groups without a bound pod."""
        stale = [a for a, at in self._nominated.values() if at < before_micros]
        waiting = [anchor for anchor in stale if not self._recorder.started(anchor.group)]
        for anchor in stale:
            del self._nominated[anchor.group]
            self._changed(anchor.group)
        return waiting

    def is_pending(self, pod: PodRef) -> bool:
        """Whether the pod is unbound and live, by the watch."""
        known = self._pods.get(pod.uid)
        return known is not None and _is_pending(known)

    @property
    def any_group_pending(self) -> bool:
        """Whether a group with pending pods never had a bound pod."""
        return any(
            _is_pending(known)
            for group in self._unstarted
            for known in self._members[group].values()
        )

    def groups(self) -> Iterator[Group]:
        """The planned groups with pods of which some are missing or pending."""
        for name in [*self._unfinished]:
            view = self._group_views.get(name) or self._group(name)
            self._group_views[name] = view
            if view.missing or view.pending:
                yield view
            else:
                del self._unfinished[name]

    def nodes(self) -> Iterator[Node]:
        """All nodes with their free capacity."""
        for name, (node, allocatable) in self._nodes.items():
            if name not in self._node_views:
                used = self._used[name]
                free = {key: amount - used[key] for key, amount in allocatable.items()}
                self._node_views[name] = Node(
                    name, self.rack_of(name), node.metadata.labels, free, usable(node)
                )
            yield self._node_views[name]

    def rack_of(self, node: str) -> str:
        """The rack of a current or former node; "" if unknown."""
        return self._racks.get(node, "")

    def _changed(self, group: str) -> None:
        self._group_views.pop(group, None)
        if self._members.get(group):
            self._unfinished[group] = None
        else:
            self._unfinished.pop(group, None)

    def _group(self, name: str) -> Group:
        members = self._members[name]
        waiting = [known for known in members.values() if _is_pending(known)]
        pending = sorted(waiting, key=lambda known: (known.created, known.ref))
        running = [k for k in members.values() if k.node and not k.ended and not k.terminating]
        racks = {self.rack_of(known.node) for known in running}
        return Group(
            name=name,
            arrived=min(known.created for known in members.values()),
            size=self._sizes[name],
            shape=self._shapes[name],
            pending=tuple(known.ref for known in pending),
            untried=sum(not known.unschedulable for known in pending),
            racks=frozenset(racks - {""}),
            placed=len(running) + self._succeeded[name],
            started=self._recorder.started(name),
            nominated=self._nominated[name][0].rack if name in self._nominated else "",
        )

    def _observe(self, pod: Pod, now_micros: int) -> None:
        known = self._pods.get(pod.metadata.uid) or self._add(pod)
        self._changed(known.group)
        if known.group and not pod.spec.node_name:
            known.unschedulable = pod.unschedulable
        known.terminating = pod.metadata.deletion_timestamp is not None
        if pod.spec.node_name and not known.node:
            self._bind(known, pod.spec.node_name)
            if known.group:
                as_nominated = self._bound_as_nominated(known)
                self._recorder.bound(known.group, known.ref, known.node, as_nominated, now_micros)
                self._unstarted.discard(known.group)
        if pod.ended and not known.ended:
            self._release(known)
            known.ended = True
            self._succeeded[known.group] += pod.status.phase == "Succeeded"

    def _bound_as_nominated(self, known: _PodState) -> bool:
        """Whether the pod was bound to its nominated node."""
        anchor, _ = self._nominated.get(known.group, (None, 0))
        return anchor is not None and (known.ref, known.node) in anchor.places

    def _add(self, pod: Pod) -> _PodState:
        meta = pod.metadata
        group = meta.labels.get(GROUP_LABEL, "")
        known = _PodState(
            PodRef(meta.namespace, meta.name, meta.uid),
            group if group in self._sizes else "",
            meta.creation_timestamp,
            requests_of(pod.spec),
        )
        self._pods[meta.uid] = known
        if known.group:
            self._members[group][meta.uid] = known
            if not self._recorder.started(group):
                self._unstarted.add(group)
            if group not in self._shapes:
                self._shapes[group] = shape_of(pod.spec)
        return known

    def _remove(self, uid: str) -> None:
        known = self._pods.pop(uid)
        if known.group:
            del self._members[known.group][uid]
            self._changed(known.group)
        if not known.ended:
            self._release(known)

    def _bind(self, known: _PodState, node: str) -> None:
        if known.node:
            return
        known.node = node
        self._changed(known.group)
        self._node_views.pop(node, None)
        self._used[node].update(known.requests)

    def _release(self, known: _PodState) -> None:
        if known.node:
            self._node_views.pop(known.node, None)
            self._used[known.node].subtract(known.requests)

    def _set_node(self, node: KubeNode) -> None:
        name, labels = node.metadata.name, node.metadata.labels
        self._nodes[name] = (node, allocatable_of(node))
        self._node_views.pop(name, None)
        rack = labels.get(RACK_KEY, "")
        if self._racks.get(name) != rack:
            self._racks[name] = rack
            if self._used.get(name):  # of pods observed before their node
                self._group_views.clear()


def _is_pending(known: _PodState) -> bool:
    return not known.node and not known.terminating and not known.ended
