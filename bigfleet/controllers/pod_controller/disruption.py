"""Which Nodes can be drained at the least cost to their pods. Pure.

A Node can be drained if each of its pods, one by one, fits on the remaining Nodes, where
kube-scheduler would put it. These placements are kept for the Nodes that are tried next, so that
all reported Nodes can be drained together. Waiting pods and those being evicted are placed first.

Nodes are tried in this order: empty ones, then those whose pods cost least to evict, and those with
pods of Jobs last, since that work completes by itself and is lost when interrupted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from bigfleet.controllers.pod_controller.free_capacity import NOWHERE, FreeCapacity, counts
from bigfleet.controllers.pod_controller.occupancy import ClusterSnapshot
from bigfleet.controllers.pod_controller.shapes import Shape

# Bounds the time of a review; the cheapest Nodes come first.
_MAX_TRIED = 500
_MAX_PLACED, _MAX_NODE_CHECKS = 1_000, 1_000_000


class NodeDisruption(NamedTuple):
    """The disruption of draining a Node: its pods, their cost, and whether all fit elsewhere; if
    not, why.
    """

    node: str
    pods: int
    cost: float
    fits: bool
    why: str = ""


def review(
    snapshot: ClusterSnapshot,
    most: int,
    only: Collection[str] = (),
    preferred: Collection[str] = (),
    reclaiming: Collection[str] = (),
) -> list[NodeDisruption]:
    """At most `most` Nodes that can be drained together, the best first.

    With `only`, among those Nodes, and with a verdict also for those that cannot. Otherwise half of
    the places, rounded up, are reserved for `preferred` Nodes. Nodes in `reclaiming` are about to
    be drained, though the snapshot may not show it yet.
    """
    return _Review(snapshot, only, reclaiming).verdicts(most, set(preferred))


class _Candidate(NamedTuple):
    number: int
    pods: int
    cost: float
    batch: bool
    why_not: str

    @property
    def order(self) -> tuple[bool, float, int]:
        return self.batch, self.cost, self.pods


class _Review:
    def __init__(
        self, snapshot: ClusterSnapshot, only: Collection[str], reclaiming: Collection[str]
    ) -> None:
        going = frozenset(reclaiming)
        self._nodes = [
            replace(node, reclaiming=True) if node.name in going else node
            for node in snapshot.nodes
        ]
        self._only = frozenset(only)
        self._on: list[Counter[Shape]] = [Counter() for _ in self._nodes]
        placed = list(counts(self._nodes, snapshot.placed))
        for each in placed:
            self._on[each.node][each.shape] = each.pods
        self._candidates = sorted(self._all_candidates(), key=lambda c: c.order)[:_MAX_TRIED]
        moving = [c.number for c in self._candidates]
        moving += [n for n, node in enumerate(self._nodes) if node.reclaiming]
        movable = [shape for n in moving for shape in self._on[n] if not shape.is_per_node]
        pods = [*placed, *counts(self._nodes, snapshot.terminating)]
        self._free_capacity = FreeCapacity(self._nodes, pods, [*movable, *snapshot.waiting])
        self._left = max(_MAX_PLACED, _MAX_NODE_CHECKS // max(1, len(self._nodes)))
        self._reserve(snapshot.waiting)

    def verdicts(self, most: int, preferred: set[str]) -> list[NodeDisruption]:
        kept = min(len(preferred), (most + 1) // 2)
        others, found, refused = most - kept, list[NodeDisruption](), list[NodeDisruption]()
        for candidate in self._candidates:
            name = self._nodes[candidate.number].name
            if len(found) >= most or self._left <= 0:
                break
            if name not in preferred and others <= 0:
                continue
            why = candidate.why_not or self._try(candidate.number)
            verdict = NodeDisruption(name, candidate.pods, candidate.cost, not why, why)
            if why:
                refused.append(verdict)
                continue
            found.append(verdict)
            others -= name not in preferred
        return [*found, *refused] if self._only else found

    def _all_candidates(self) -> Iterator[_Candidate]:
        for number, node in enumerate(self._nodes):
            if self._only:
                if node.name in self._only:
                    yield self._candidate(number)
            elif node.ours and node.ready and not node.reclaiming and not node.blocking_annotation:
                candidate = self._candidate(number)
                if not candidate.why_not:
                    yield candidate

    def _candidate(self, number: int) -> _Candidate:
        moving = [(s, count) for s, count in self._on[number].items() if not s.is_per_node]
        not_evictable_reason = (
            f"{s.namespace}: {s.not_evictable_reason}" for s, _ in moving if s.not_evictable_reason
        )
        return _Candidate(
            number,
            sum(count for _, count in moving),
            sum(shape.cost * count for shape, count in moving),
            any(shape.batch for shape, _ in moving),
            next(not_evictable_reason, ""),
        )

    def _reserve(self, waiting: Mapping[Shape, int]) -> None:
        """Place the pods that will be scheduled before any other is evicted."""
        for number, node in enumerate(self._nodes):
            if node.reclaiming and node.name not in self._only:
                self._move_away(number, list(self._on[number].items()))
        for shape in sorted(waiting, key=lambda shape: -shape.priority):
            for _ in range(waiting[shape]):
                if not self._put(shape, NOWHERE):
                    break

    def _move_away(self, number: int, pods: Sequence[tuple[Shape, int]]) -> None:
        for shape, count in pods:
            for _ in range(0 if shape.is_per_node else count):
                self._free_capacity.change(shape, number, -1)
                self._put(shape, number)

    def _put(self, shape: Shape, comes_from: int) -> bool:
        """Place one pod, if it fits and the budget of checks allows."""
        self._left -= 1
        where = self._free_capacity.place(shape, comes_from) if self._left > 0 else NOWHERE
        if where == NOWHERE:
            return False
        self._free_capacity.change(shape, where, 1)
        self._on[where][shape] += 1
        return True

    def _try(self, number: int) -> str:
        """Drain the Node; if that is impossible, undo it and return why."""
        moving = [(s, count) for s, count in self._on[number].items() if not s.is_per_node]
        for shape, _ in moving:
            self._left -= 1
            if self._free_capacity.fits_nowhere(shape, number):
                return _why(shape)
        takes_pods = bool(self._free_capacity.open[number])
        self._free_capacity.close(number)
        for shape, count in moving:
            self._free_capacity.change(shape, number, -count)
        placed: list[tuple[Shape, int]] = []
        stuck = self._place_all(number, moving, placed)
        if stuck is None:
            for shape, where in placed:
                self._on[where][shape] += 1
            self._on[number].clear()
            return ""
        for shape, where in placed:
            self._free_capacity.change(shape, where, -1)
        for shape, count in moving:
            self._free_capacity.change(shape, number, count)
        self._free_capacity.reopen(number, takes_pods=takes_pods)
        return _why(stuck)

    def _place_all(
        self, number: int, moving: Sequence[tuple[Shape, int]], placed: list[tuple[Shape, int]]
    ) -> Shape | None:
        """Place all pods; return the first shape of which one does not fit."""
        for shape, count in sorted(moving, key=lambda each: -each[0].priority):
            for _ in range(count):
                self._left -= 1
                where = self._free_capacity.place(shape, number)
                if where == NOWHERE:
                    return shape
                self._free_capacity.change(shape, where, 1)
                placed.append((shape, where))
        return None


def _why(stuck: Shape) -> str:
    return f"a pod of namespace {stuck.namespace} does not fit on any other node"
