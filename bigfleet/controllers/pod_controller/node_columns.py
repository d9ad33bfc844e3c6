"""Nodes as columns: which pods they admit, and their topology domains. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigfleet.controllers.pod_controller.nodes import Node
from bigfleet.controllers.pod_controller.shapes import HardSpread, NodeFilter
from bigfleet.model.need import Taint

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]


class Domains(NamedTuple):
    """The Nodes' domains of one topology key by number; the last number is for those in none."""

    of: Numbers
    none: int


class Tally(NamedTuple):
    """The number of matching pods in each domain."""

    domains: Domains
    counts: Numbers

    def change(self, node: int, by: int) -> None:
        self.counts[self.domains.of[node]] += by

    def here(self) -> Numbers:
        """For each Node, the count of its domain."""
        here: Numbers = self.counts[self.domains.of]
        return here

    @property
    def somewhere(self) -> Flags:
        """Which Nodes are in any domain."""
        flags: Flags = self.domains.of != self.domains.none
        return flags


class NodeColumns:
    """Evaluates filters and domains over all Nodes, with a cache."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        own = {key for node in nodes for key, value in node.labels.items() if value == node.name}
        # Labels that differ from Node to Node; filters without these are evaluated once per class.
        self._own_keys = {"metadata.name", *own}
        self._classes = _classes(nodes)
        self._by_key: dict[str, Domains] = {}
        self._admitting: dict[NodeFilter, tuple[Flags, Flags]] = {}

    def admit(self, node_filter: NodeFilter) -> tuple[Flags, Flags]:
        """Which Nodes match the node affinity, and whose taints are tolerated."""
        if node_filter not in self._admitting:
            one_by_one = bool(node_filter.keys & self._own_keys)
            admitted = np.zeros(len(self._nodes), bool)
            tolerated = np.zeros(len(self._nodes), bool)
            for members in self._classes:
                first = self._nodes[members[0]]
                tolerated[members] = node_filter.tolerate(first.taints)
                if one_by_one:
                    for number in members:
                        node = self._nodes[number]
                        admitted[number] = node_filter.admit(node.name, node.labels)
                else:
                    admitted[members] = node_filter.admit(first.name, first.labels)
            self._admitting[node_filter] = admitted, tolerated
        return self._admitting[node_filter]

    def domains(self, key: str) -> Domains:
        """The Nodes' domains of one topology key."""
        if key not in self._by_key:
            values = [node.labels.get(key) for node in self._nodes]
            known = sorted({value for value in values if value is not None})
            indexes = {value: number for number, value in enumerate(known)}
            numbers = [len(known) if value is None else indexes[value] for value in values]
            self._by_key[key] = Domains(np.array(numbers, np.int64), len(known))
        return self._by_key[key]

    def eligible(self, node_filter: NodeFilter, spread: HardSpread) -> Flags:
        """Which Nodes' domains count for a spread constraint."""
        admitted, tolerated = self.admit(node_filter)
        flags = np.ones(len(self._nodes), bool)
        if spread.honors_node_affinity:
            flags &= admitted
        if spread.honors_node_taints:
            flags &= tolerated
        return flags


def _classes(nodes: Sequence[Node]) -> Sequence[Sequence[int]]:
    """Groups of Nodes that are equal to pods but for their names."""
    found: dict[tuple[frozenset[tuple[str, str]], tuple[Taint, ...]], list[int]] = {}
    for number, node in enumerate(nodes):
        labels = frozenset((k, v) for k, v in node.labels.items() if v != node.name)
        found.setdefault((labels, node.taints), []).append(number)
    return list(found.values())
