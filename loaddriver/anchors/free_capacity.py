"""Room in racks, counted in whole pods per node, and promised to one group at a time.

A rack is not given to one group alone: gangs are mostly far smaller than a rack, and a gang that
waits for its last pod would keep the whole rack empty. Instead, what unfinished groups still need
is set aside, pod by pod on nodes that can take them. So all promises can be kept together, and no
room is promised twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from loaddriver.anchors.pod_shape import PodShape


@dataclass(frozen=True)
class Node:
    """A node now. `free` is allocatable less the requests of its pods, below 0 when over-full.

    `usable` nodes are Ready and take new pods; `rack` is "" where its labels name none.
    """

    name: str
    rack: str
    labels: Mapping[str, str]
    free: Mapping[str, int]
    usable: bool = True


@dataclass
class _Fits:
    """How many pods of one shape still fit: by node that its affinity accepts, and by rack."""

    nodes: dict[str, int]
    racks: Counter[str]


class FreeCapacity:
    """What is left of the usable nodes in racks while pods are set aside on them."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = {node.name: node for node in nodes if node.usable and node.rack}
        self._free = {name: dict(node.free) for name, node in self._nodes.items()}
        self._fits: dict[PodShape, _Fits] = {}
        self._overcommitted: set[str] = set()

    @property
    def usable_nodes(self) -> int:
        """Nodes in racks that take new pods, whatever their labels."""
        return len(self._nodes)

    def pods_per_node(self, shape: PodShape) -> Mapping[str, int]:
        """Pods that fit, by the name of each usable node that `shape` accepts."""
        return self._of(shape).nodes

    def pods_per_rack(self, shape: PodShape) -> dict[str, int]:
        """Pods that fit, by rack; without racks whose own groups do not fit into them."""
        racks = self._of(shape).racks
        return {rack: pods for rack, pods in racks.items() if rack not in self._overcommitted}

    def tightest_node(self, shape: PodShape, rack: str) -> str:
        """The node of `rack` with the least room that takes a pod; the first by name of equals."""
        nodes = self._of(shape).nodes
        return min(
            (pods, name) for name, pods in nodes.items() if pods and self._rack(name) == rack
        )[1]

    def take(self, shape: PodShape, node: str, pods: int = 1) -> None:
        """Set room for `pods` aside on one node that has it."""
        free = self._free[node]
        for name, amount in shape.requests:
            free[name] = free.get(name, 0) - amount * pods
        for other, fits in self._fits.items():
            if node in fits.nodes:
                left = other.fitting_pods(free)
                fits.racks[self._rack(node)] += left - fits.nodes[node]
                fits.nodes[node] = left

    def reserve(self, shape: PodShape, pods: int, racks: Collection[str]) -> None:
        """Set room for `pods` aside in `racks`, on the fullest nodes first.

        Where not all fit, the racks get no further group: how the rest will fit is not known.
        """
        nodes = self._of(shape).nodes
        for room, name in sorted((room, name) for name, room in nodes.items()):
            here = min(pods, room) if self._rack(name) in racks else 0
            if here:
                self.take(shape, name, here)
                pods -= here
        if pods:
            self._overcommitted.update(racks)

    def _of(self, shape: PodShape) -> _Fits:
        if shape not in self._fits:
            nodes = {
                name: shape.fitting_pods(self._free[name])
                for name, node in self._nodes.items()
                if shape.accepts(node.labels)
            }
            racks: Counter[str] = Counter()
            for name, pods in nodes.items():
                racks[self._rack(name)] += pods
            self._fits[shape] = _Fits(nodes, racks)
        return self._fits[shape]

    def _rack(self, node: str) -> str:
        return self._nodes[node].rack
