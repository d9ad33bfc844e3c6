"""Which Nodes there are, and how many pods of which shape each of them holds. Pure.

Pods of one shape are interchangeable, so that they are only counted: a pod costs no more than an
entry for the Nodes that have its shape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any, TypeVar

from bigfleet.controllers.pod_controller.nodes import Machine, Node
from bigfleet.controllers.pod_controller.shapes import Peers, Shape
from bigfleet.controllers.pod_controller.upcoming import unplaced_pods
from bigfleet.model.need import HOSTNAME_LABEL

_MAX_VALUES = 1000
_NEWEST = 5

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class PodLocation:
    """Where a pod is: on `node`, or waiting if that is ""; a `terminating` one has been deleted."""

    shape: Shape
    node: str
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """What an Occupancy was at one moment: pods by shape, Node and number."""

    nodes: Sequence[Node]
    placed: Sequence[tuple[Shape, str, int]]
    terminating: Sequence[tuple[Shape, str, int]]
    waiting: Mapping[Shape, int]


class LabelIndex:
    """Finds the shapes that a selector may be about without looking at all of them."""

    def __init__(self) -> None:
        self._by_pair: dict[tuple[str, str, str], set[Shape]] = {}
        self._by_namespace: dict[str, set[Shape]] = {}

    def add(self, shape: Shape) -> None:
        """From now on `shape` is to be found."""
        self._by_namespace.setdefault(shape.namespace, set()).add(shape)
        for pair in shape.labels.items():
            self._by_pair.setdefault((shape.namespace, *pair), set()).add(shape)

    def remove(self, shape: Shape) -> None:
        """It is not any more."""
        _discard(self._by_namespace, shape.namespace, shape)
        for pair in shape.labels.items():
            _discard(self._by_pair, (shape.namespace, *pair), shape)

    def find(self, peers: Peers) -> Iterator[Shape]:
        """Every shape that is among `peers`."""
        if peers.selector is None:
            return
        pair = next(iter(peers.selector.pairs), None)
        among = self._by_namespace.keys() if peers.namespaces is None else peers.namespaces
        for namespace in among:
            if pair is None:
                possible = self._by_namespace.get(namespace, ())
            else:
                possible = self._by_pair.get((namespace, *pair), ())
            for shape in possible:
                if peers.include(shape):
                    yield shape


def _discard(index: dict[K, set[Shape]], key: K, shape: Shape) -> None:
    index[key].discard(shape)
    if not index[key]:
        del index[key]


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
        """A pod is there."""
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
        """A pod that was there has gone."""
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
        """As it is now, for whoever works on it while this changes."""
        placed = [(s, node, n) for s, nodes in self.placed.items() for node, n in nodes.items()]
        terminating = [
            (s, node, n) for s, nodes in self.terminating.items() for node, n in nodes.items()
        ]
        return ClusterSnapshot(list(self.nodes.values()), placed, terminating, dict(self.waiting))

    def set_upcoming(self, name: str, machine: Machine | None) -> None:
        """The machine of that name is on its way; None: it is not, or not any more."""
        if machine is None:
            self.upcoming.pop(name, None)
        else:
            self.upcoming[name] = machine

    def unplaced_pods(self) -> dict[Shape, int]:
        """How many of the pods that wait find no place on the machines on their way, by shape."""
        return unplaced_pods(self.upcoming.values(), self.waiting, self.where)

    def where(self, shape: Shape) -> Sequence[Mapping[str, Any]]:
        """Requirements of an additional machine for a pod of `shape`.

        They name the domains that the pods which run leave to it: beside its companions, away from
        those that it avoids, and where its spread lets it. And they name the newest Nodes, which do
        not help it: so a machine that has come for an earlier request is not taken for this one's.
        """
        found: dict[tuple[str, str], set[str]] = {}
        for peers in shape.affinity_terms:
            if domains := self._domains(peers):
                _narrow(found, peers.topology_key, set(domains))
        for spread in shape.spread:
            if allowed := self._least(shape, spread.peers, spread.max_skew):
                _narrow(found, spread.peers.topology_key, allowed)
        for peers in shape.anti_affinity_terms:
            if peers.topology_key != HOSTNAME_LABEL and (taken := self._domains(peers)):
                found.setdefault((peers.topology_key, "NotIn"), set()).update(taken)
        if newest := self._newest():
            found[HOSTNAME_LABEL, "NotIn"] = newest
        return [
            {"key": key, "operator": operator, "values": sorted(values)[:_MAX_VALUES]}
            for (key, operator), values in sorted(found.items())
        ]

    def pinned_to_full_node(self, shape: Shape) -> bool:
        """Whether a pod must run on the very Node where others do: no other machine helps it."""
        return any(
            p.topology_key == HOSTNAME_LABEL and self._domains(p) for p in shape.affinity_terms
        )

    def is_unplaced_gang(self, shape: Shape) -> bool:
        """Whether the pod belongs beside pods like itself, of which none runs."""
        return any(p.include(shape) and not self._domains(p) for p in shape.affinity_terms)

    def _newest(self) -> set[str]:
        nodes = nlargest(_NEWEST, self.nodes.values(), key=lambda node: (node.created, node.name))
        return {node.labels.get(HOSTNAME_LABEL, node.name) for node in nodes}

    def _domains(self, peers: Peers) -> Counter[str]:
        """How many of `peers` run in which domain."""
        counts: Counter[str] = Counter()
        for shape in self._by_label.find(peers):
            for name, count in self.placed[shape].items():
                node = self.nodes.get(name)
                if node is not None and peers.topology_key in node.labels:
                    counts[node.labels[peers.topology_key]] += count
        return counts

    def _least(self, shape: Shape, peers: Peers, max_skew: int) -> set[str]:
        """The domains that kube-scheduler would let a pod into now; any Node is a domain of its
        own, and a further one is always allowed, so that nothing is said of those.
        """
        key = peers.topology_key
        if key == HOSTNAME_LABEL:
            return set()
        there = {
            node.labels[key]
            for node in self.nodes.values()
            if key in node.labels and shape.node_filter.admit(node.name, node.labels)
        }
        counts = self._domains(peers)
        least = min((counts[domain] for domain in there), default=0)
        itself = 1 if peers.include(shape) else 0
        return {domain for domain in there if counts[domain] + itself - least <= max_skew}


def _narrow(found: dict[tuple[str, str], set[str]], key: str, allowed: set[str]) -> None:
    """All terms of a key must hold; where they contradict each other the first one stands."""
    known = found.get((key, "In"))
    found[key, "In"] = (known & allowed) or known if known else allowed
