"""The cluster's Nodes, and the number of pods of each shape on them. Pure.

Pods of one shape are interchangeable, so they are only counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from heapq import nlargest
from typing import Any, NamedTuple

from bigfleet.controllers.pod_controller.label_index import LabelIndex
from bigfleet.controllers.pod_controller.nodes import Machine, Node
from bigfleet.controllers.pod_controller.shapes import HardSpread, Peers, Shape
from bigfleet.controllers.pod_controller.unschedulable import Outlook
from bigfleet.controllers.pod_controller.upcoming import avoids, unplaced_pods
from bigfleet.model.labels import HOSTNAME_LABEL

_MAX_VALUES = 1000
_NEWEST = 5


@dataclass(frozen=True, slots=True)
class PodLocation:
    """Where a pod is: on `node`, or waiting if that is ""."""

    shape: Shape
    node: str
    terminating: bool = False


class AskingPod(NamedTuple):
    """A waiting pod that has requested a machine, and the requirements that name its domains."""

    shape: Shape
    where: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """An Occupancy at a point in time: Nodes, and pods by shape, Node and number."""

    nodes: Sequence[Node]
    placed: Sequence[tuple[Shape, str, int]]
    terminating: Sequence[tuple[Shape, str, int]]
    waiting: Mapping[Shape, int]


@dataclass
class Occupancy:
    """The cluster's Nodes and pods. `placed` and `terminating` count pods by shape and Node,
    `waiting` those without a Node by shape.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    upcoming: dict[str, Machine] = field(default_factory=dict)
    placed: dict[Shape, Counter[str]] = field(default_factory=dict)
    terminating: dict[Shape, Counter[str]] = field(default_factory=dict)
    waiting: Counter[Shape] = field(default_factory=Counter)
    _by_label: LabelIndex = field(default_factory=LabelIndex)

    def add(self, place: PodLocation) -> None:
        """Add a pod."""
        shape = place.shape
        if not place.node:
            self.waiting[shape] += 1
            return
        where = self.terminating if place.terminating else self.placed
        if shape not in where:
            where[shape] = Counter()
            if not place.terminating:
                self._by_label.add(shape)
        where[shape][place.node] += 1

    def remove(self, place: PodLocation) -> None:
        """Remove a pod."""
        shape = place.shape
        where = self.terminating if place.terminating else self.placed
        counts: Counter[Any] = where[shape] if place.node else self.waiting
        counted = place.node or shape
        counts[counted] -= 1
        if counts[counted]:
            return
        del counts[counted]
        if place.node and not counts:
            del where[shape]
            if not place.terminating:
                self._by_label.remove(shape)

    def snapshot(self) -> ClusterSnapshot:
        """A copy for use in another thread."""
        placed = [(s, node, n) for s, nodes in self.placed.items() for node, n in nodes.items()]
        terminating = [
            (s, node, n) for s, nodes in self.terminating.items() for node, n in nodes.items()
        ]
        return ClusterSnapshot(list(self.nodes.values()), placed, terminating, dict(self.waiting))

    def set_upcoming(self, name: str, machine: Machine | None) -> None:
        """Set the upcoming machine of that name; None removes it."""
        if machine is None:
            self.upcoming.pop(name, None)
        else:
            self.upcoming[name] = machine

    def unplaced_pods(self) -> dict[Shape, int]:
        """How many of the waiting pods of each shape do not fit on the upcoming machines."""
        return unplaced_pods(self.upcoming.values(), self.waiting, self.allowed_domains)

    def outlooks(self) -> Callable[[Shape], Outlook]:
        """The Outlook of waiting pods by shape, as of now, computed on demand."""
        unplaced = cache(self.unplaced_pods)

        @cache
        def outlook(shape: Shape) -> Outlook:
            should_wait, gang_unplaced = not unplaced().get(shape), self.is_unplaced_gang(shape)
            most_on_node = self.most_on_new_node(shape)
            return Outlook(should_wait, gang_unplaced, most_on_node, _may_be_anywhere(shape))

        return outlook

    def allowed_domains(self, shape: Shape) -> Sequence[Mapping[str, Any]]:
        """The domains that running pods allow a pod of `shape`, as requirements: with the pods of
        its affinity, without those of its anti-affinity, and within its spread.
        """
        return _requirements(self._allowed_values(shape))

    def where(self, shape: Shape, asking: Iterable[AskingPod] = ()) -> Sequence[Mapping[str, Any]]:
        """The requirements of an additional machine for a pod of `shape`: its allowed domains, and
        none of the newest Nodes, so that the machine of an earlier request does not count for it.

        `asking` are the other pods that have requested a machine. Those that did in one domain
        count as if they ran there: of many pods that spread, each requests one where the next of
        them will be allowed, instead of all in the domain that is open first.
        """
        terms = (*(spread.peers for spread in shape.spread), *shape.anti_affinity_terms)
        named = any(peers.topology_key != HOSTNAME_LABEL for peers in terms)
        asked = [*asking] if named else []
        # Several of them would all get the machine that is cheapest, in one domain.
        found = self._allowed_values(shape, asked, pins=self.waiting[shape] > 1)
        if newest := self._newest():
            found[HOSTNAME_LABEL, "NotIn"] = newest
        return _requirements(found)

    def where_else(
        self, shape: Shape, excluded: Sequence[Mapping[str, Any]]
    ) -> Sequence[Mapping[str, Any]]:
        """As `where`, as of now, for a request that excludes these Nodes already."""
        return sorted([*self.allowed_domains(shape), *excluded], key=_key_and_operator)

    def _allowed_values(
        self, shape: Shape, asking: Sequence[AskingPod] = (), *, pins: bool = False
    ) -> dict[tuple[str, str], set[str]]:
        """By key and operator; `pins`: of a spread's domains only the one with the fewest pods."""
        found: dict[tuple[str, str], set[str]] = {}
        for peers in shape.affinity_terms:
            if domains := self._domains(peers):
                _narrow(found, peers.topology_key, set(domains))
        for spread in shape.spread:
            if spread.peers.topology_key == HOSTNAME_LABEL:
                continue  # a new Node is a new domain
            counts = self._domains(spread.peers) + _asked_in(spread.peers, asking)
            self._narrow_to_skew(found, shape, spread, counts, pins=pins)
        for peers in shape.anti_affinity_terms:
            if peers.topology_key == HOSTNAME_LABEL:
                continue
            if taken := self._domains(peers) + _asked_in(peers, asking):
                found.setdefault((peers.topology_key, "NotIn"), set()).update(taken)
        return found

    def pinned_to_full_node(self, shape: Shape) -> bool:
        """Whether pod affinity pins a pod to a Node where others run: no new machine helps it."""
        return any(
            p.topology_key == HOSTNAME_LABEL and self._domains(p) for p in shape.affinity_terms
        )

    def most_on_new_node(self, shape: Shape) -> int | None:
        """How many pods of `shape` a new Node may have; None for as many as it has room for."""
        if avoids(shape, shape):
            return 1
        limits = (
            spread.max_skew + self._least(shape, spread, self._domains(spread.peers))
            for spread in shape.spread
            if spread.peers.topology_key == HOSTNAME_LABEL and spread.peers.include(shape)
        )
        return min(limits, default=None)

    def is_unplaced_gang(self, shape: Shape) -> bool:
        """Whether the pod has affinity to pods of its own kind, none of which runs yet."""
        return any(p.include(shape) and not self._domains(p) for p in shape.affinity_terms)

    def _newest(self) -> set[str]:
        nodes = nlargest(_NEWEST, self.nodes.values(), key=lambda node: (node.created, node.name))
        return {node.labels.get(HOSTNAME_LABEL, node.name) for node in nodes}

    def _domains(self, peers: Peers) -> Counter[str]:
        """The number of running `peers` in each domain."""
        counts: Counter[str] = Counter()
        for shape in self._by_label.find(peers):
            for name, count in self.placed[shape].items():
                node = self.nodes.get(name)
                if node is not None and peers.topology_key in node.labels:
                    counts[node.labels[peers.topology_key]] += count
        return counts

    def _counting(self, shape: Shape, key: str) -> set[str]:
        """The domains of a topology key that count for the spread of pods of `shape`."""
        return {
            node.labels[key]
            for node in self.nodes.values()
            if key in node.labels and shape.node_filter.admit(node.name, node.labels)
        }

    def _least(self, shape: Shape, spread: HardSpread, counts: Counter[str]) -> int:
        """The global minimum of a spread with so many pods in each domain."""
        there = self._counting(shape, spread.peers.topology_key)
        if len(there) < spread.min_domains:
            return 0
        return min((counts[domain] for domain in there), default=0)

    def _narrow_to_skew(
        self,
        found: dict[tuple[str, str], set[str]],
        shape: Shape,
        spread: HardSpread,
        counts: Counter[str],
        *,
        pins: bool,
    ) -> None:
        """Narrow `found` to the domains that the spread allows, with so many pods in each."""
        peers, key = spread.peers, spread.peers.topology_key
        there = self._counting(shape, key)
        enough, least = len(there) >= spread.min_domains, self._least(shape, spread, counts)
        itself = 1 if peers.include(shape) else 0
        full = {domain for domain in there if counts[domain] + itself - least > spread.max_skew}
        if enough and there:
            # A new domain would hold down the minimum of all others.
            allowed = there - full
            fewest = min(allowed, key=lambda domain: (counts[domain], domain), default="")
            _narrow(found, key, {fewest} if pins and allowed else allowed)
        elif full:
            found.setdefault((key, "NotIn"), set()).update(full)


def _may_be_anywhere(shape: Shape) -> bool:
    """Whether no running pods close domains of several Nodes to a pod of `shape`."""
    others = (*(spread.peers for spread in shape.spread), *shape.anti_affinity_terms)
    return not shape.affinity_terms and all(p.topology_key == HOSTNAME_LABEL for p in others)


def _asked_in(peers: Peers, asking: Sequence[AskingPod]) -> Counter[str]:
    """How many of the `peers` have requested a machine in each domain."""
    return Counter(
        requirement["values"][0]
        for shape, where in asking
        for requirement in where
        if (requirement["key"], requirement["operator"]) == (peers.topology_key, "In")
        and len(requirement["values"]) == 1
        and peers.include(shape)
    )


def _requirements(found: Mapping[tuple[str, str], set[str]]) -> Sequence[Mapping[str, Any]]:
    return [
        {"key": key, "operator": operator, "values": sorted(values)[:_MAX_VALUES]}
        for (key, operator), values in sorted(found.items())
    ]


def _key_and_operator(requirement: Mapping[str, Any]) -> tuple[str, str]:
    return requirement["key"], requirement["operator"]


def _narrow(found: dict[tuple[str, str], set[str]], key: str, allowed: set[str]) -> None:
    """Intersect the terms of a key; where they contradict each other the first one counts."""
    known = found.get((key, "In"))
    found[key, "In"] = (known & allowed) or known if known else allowed
