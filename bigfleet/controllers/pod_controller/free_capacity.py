"""The free capacity of Nodes, and where kube-scheduler would place a pod. Pure.

Everything that pods of the `movable` shapes depend on is kept as columns over the Nodes, so that
placing a pod takes a few array operations, however many other pods there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigfleet.controllers.pod_controller.label_index import LabelIndex
from bigfleet.controllers.pod_controller.node_columns import Flags, NodeColumns, Numbers, Tally
from bigfleet.controllers.pod_controller.nodes import Node
from bigfleet.controllers.pod_controller.occupancy import ClusterSnapshot, Occupancy
from bigfleet.controllers.pod_controller.shapes import HardSpread, Peers, Shape
from bigfleet.model import resources
from bigfleet.model.labels import ZONE_LABEL

NOWHERE = -1
_BALANCED = (resources.CPU, resources.MEMORY)


class Count(NamedTuple):
    """The number of pods of one shape on the Node with that number."""

    shape: Shape
    node: int
    pods: int


def counts(nodes: Sequence[Node], pods: Iterable[tuple[Shape, str, int]]) -> Iterator[Count]:
    """Those of `pods`, by shape, Node and number, that are on `nodes`."""
    numbers = {node.name: number for number, node in enumerate(nodes)}
    for shape, name, pods_there in pods:
        if (number := numbers.get(name)) is not None:
            yield Count(shape, number, pods_there)


class _Spread(NamedTuple):
    rule: HardSpread
    tally: Tally
    itself: int
    eligible: Flags


@dataclass
class _Rules:
    """The constraints of one shape, and the tallies that its pods count in."""

    static: Flags
    request: Numbers
    ports: list[Numbers]
    affinity_terms: list[tuple[Tally, bool]] = field(default_factory=list)
    anti_affinity_terms: list[Tally] = field(default_factory=list)
    existing_anti_affinity: list[Tally] = field(default_factory=list)
    spread: list[_Spread] = field(default_factory=list)
    counted: list[Tally] = field(default_factory=list)


class FreeCapacity:
    """The Nodes, numbered in the given order, with `pods` on them. Nodes that are not ready,
    cordoned or being reclaimed accept no pods.
    """

    def __init__(
        self, nodes: Sequence[Node], pods: Iterable[Count], movable: Iterable[Shape]
    ) -> None:
        self._nodes, self._pods = nodes, list(pods)
        movable = list(dict.fromkeys(movable))
        self._names = sorted({r for shape in movable for r in shape.requests})
        capacity = self._matrix([node.allocatable for node in nodes])
        self._free = capacity.copy()
        self.open = np.array([n.ready and not n.cordoned and not n.reclaiming for n in nodes], bool)
        self._there = np.ones(len(nodes), bool)
        self._columns = NodeColumns(nodes)
        self._ports: dict[tuple[str, int], Numbers] = {}
        self._zones = self._columns.domains(ZONE_LABEL).of
        self._balanced = [self._names.index(r) for r in _BALANCED if r in self._names]
        self._balanced_capacity = np.maximum(capacity[:, self._balanced], 1)
        self._take_what_is_used()
        self._rules = {shape: self._basics(shape) for shape in movable}
        self._link(movable)

    def close(self, node: int) -> None:
        """Remove the Node: it accepts no pods, and no longer counts as a domain."""
        self.open[node] = self._there[node] = False

    def reopen(self, node: int, *, takes_pods: bool) -> None:
        """Undo `close`."""
        self.open[node], self._there[node] = takes_pods, True

    def change(self, shape: Shape, node: int, by: int) -> None:
        """Add (or with a negative number remove) pods of a movable shape on the Node."""
        rules = self._rules[shape]
        self._free[node] -= by * rules.request
        for used in rules.ports:
            used[node] += by
        for tally in rules.counted:
            tally.change(node, by)

    def fits_nowhere(self, shape: Shape, comes_from: int) -> bool:
        """Whether no other Node fits the pod, even regardless of inter-pod constraints."""
        rules = self._rules[shape]
        fits = rules.static & self.open & (self._free >= rules.request).all(axis=1)
        fits[comes_from] = False
        return not fits.any()

    def place(self, shape: Shape, comes_from: int = NOWHERE) -> int:
        """The Node that kube-scheduler would choose for a pod of that shape, or NOWHERE.

        A pod with volumes must stay in the zone of the Node that it `comes_from`.
        """
        rules = self._rules[shape]
        fits = rules.static & self.open & (self._free >= rules.request).all(axis=1)
        if shape.has_claims and comes_from != NOWHERE:
            fits &= self._zones == self._zones[comes_from]
        for used in rules.ports:
            fits &= used == 0
        self._apply_pod_terms(rules, fits)
        candidates = np.flatnonzero(fits)
        if not candidates.size:
            return NOWHERE
        return int(candidates[self._scores(candidates, rules.request).argmax()])

    def _apply_pod_terms(self, rules: _Rules, fits: Flags) -> None:
        for tally, itself in rules.affinity_terms:
            fits &= tally.somewhere
            if not (itself and not tally.counts[:-1].any()):
                fits &= tally.here() > 0
        for tally in (*rules.anti_affinity_terms, *rules.existing_anti_affinity):
            fits &= (tally.here() == 0) | ~tally.somewhere
        for each in rules.spread:
            fits &= self._within_skew(each)

    def _within_skew(self, spread: _Spread) -> Flags:
        rule, tally = spread.rule, spread.tally
        domains = np.unique(tally.domains.of[spread.eligible & self._there & tally.somewhere])
        least = int(tally.counts[domains].min()) if len(domains) >= rule.min_domains else 0
        flags: Flags = (tally.here() + spread.itself - least <= rule.max_skew) & tally.somewhere
        return flags

    def _scores(self, nodes: Numbers, request: Numbers) -> NDArray[np.float64]:
        """kube-scheduler's default scores: least allocated and balanced allocation.

        The mean of two shares that are left, less their standard deviation, is the smaller one.
        """
        if not self._balanced:
            return np.zeros(len(nodes))
        free = self._free[nodes][:, self._balanced] - request[self._balanced]
        scores: NDArray[np.float64] = (free / self._balanced_capacity[nodes]).min(axis=1)
        return scores

    def _matrix(self, amounts: Sequence[Mapping[str, int]]) -> Numbers:
        rows = [[each.get(name, 0) for name in self._names] for each in amounts]
        return np.array(rows, np.int64).reshape(len(amounts), len(self._names))

    def _take_what_is_used(self) -> None:
        requests = self._matrix([shape.requests for shape, _, _ in self._pods])
        numbers = np.array([node for _, node, _ in self._pods], np.int64)
        counts = np.array([count for _, _, count in self._pods], np.int64)
        np.subtract.at(self._free, numbers, requests * counts[:, None])

    def _basics(self, shape: Shape) -> _Rules:
        admitted, tolerated = self._columns.admit(shape.node_filter)
        ports = [self._port(port) for port in sorted(shape.host_ports)]
        return _Rules(admitted & tolerated, self._matrix([shape.requests])[0], ports)

    def _port(self, port: tuple[str, int]) -> Numbers:
        if port not in self._ports:
            used = self._ports[port] = np.zeros(len(self._nodes), np.int64)
            for shape, node, count in self._pods:
                if port in shape.host_ports:
                    used[node] += count
        return self._ports[port]

    def _link(self, movable: Sequence[Shape]) -> None:
        """Build the tallies for the movable shapes' terms, and for others' anti-affinity terms."""
        index, by_shape = LabelIndex(), dict[Shape, list[Count]]()
        for shape in dict.fromkeys([*movable, *(shape for shape, _, _ in self._pods)]):
            index.add(shape)
            by_shape[shape] = []
        for each in self._pods:
            by_shape[each.shape].append(each)
        self._link_own(movable, index, by_shape)
        owners: dict[Peers, list[Shape]] = {}
        for shape in by_shape:
            for peers in shape.anti_affinity_terms:
                owners.setdefault(peers, []).append(shape)
        for peers, owning in owners.items():
            avoiding = [rules for s in index.find(peers) if (rules := self._rules.get(s))]
            if avoiding:
                tally = self._tally(peers.topology_key, owning, by_shape)
                for rules in avoiding:
                    rules.existing_anti_affinity.append(tally)

    def _link_own(
        self,
        movable: Sequence[Shape],
        index: LabelIndex,
        by_shape: Mapping[Shape, Sequence[Count]],
    ) -> None:
        tallies: dict[Peers, Tally] = {}

        def tally_of(peers: Peers) -> Tally:
            if peers not in tallies:
                tallies[peers] = self._tally(peers.topology_key, index.find(peers), by_shape)
            return tallies[peers]

        for shape in movable:
            rules = self._rules[shape]
            rules.affinity_terms = [
                (tally_of(peers), peers.include(shape)) for peers in shape.affinity_terms
            ]
            rules.anti_affinity_terms = [tally_of(peers) for peers in shape.anti_affinity_terms]
            rules.spread = [
                _Spread(each, tally_of(each.peers), int(each.peers.include(shape)), eligible)
                for each in shape.spread
                for eligible in [self._columns.eligible(shape.node_filter, each)]
            ]

    def _tally(
        self, key: str, shapes: Iterable[Shape], by_shape: Mapping[Shape, Sequence[Count]]
    ) -> Tally:
        """The pods of `shapes` in each domain of `key`; `change` keeps it up to date."""
        domains = self._columns.domains(key)
        tally = Tally(domains, np.zeros(domains.none + 1, np.int64))
        for shape in shapes:
            for _, node, count in by_shape[shape]:
                tally.change(node, count)
            if shape in self._rules:
                self._rules[shape].counted.append(tally)
        return tally


def has_room_now(
    occupancy: Occupancy, nominated: Sequence[tuple[Shape, str]] = ()
) -> Callable[[Shape], bool]:
    """Whether a Node has room for a waiting pod of that shape, as of now, computed on demand.

    `nominated` are waiting pods with their nominated Nodes: kube-scheduler keeps their room from
    others of no higher priority.
    """

    @cache
    def free_capacity(kept: tuple[tuple[Shape, str, int], ...]) -> FreeCapacity:
        now: ClusterSnapshot = occupancy.snapshot()
        pods = counts(now.nodes, [*now.placed, *now.terminating, *kept])
        return FreeCapacity(now.nodes, pods, now.waiting)

    @cache
    def has_room(shape: Shape) -> bool:
        # From most priorities the same room is kept.
        kept = tuple((s, node, 1) for s, node in nominated if s.priority >= shape.priority)
        return free_capacity(kept).place(shape) != NOWHERE

    return has_room
