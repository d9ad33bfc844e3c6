"""Free capacity of racks, in whole pods per node, with reservations for groups.

A rack is not reserved for one group as a whole: gangs are mostly far smaller than a rack, and a
gang that waits for its last pod would keep the rack empty. Instead, the missing pods of unfinished
groups are reserved one by one on nodes that fit them, so that all reservations hold together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from loaddriver.anchors.pod_shape import PodShape


@dataclass(frozen=True)
class Node:
    """The state of a node. `free` is allocatable minus the requests of its pods, possibly negative.

    A `usable` node is Ready and accepts new pods; `rack` is "" without a rack label.
    """

    name: str
    rack: str
    labels: Mapping[str, str]
    free: Mapping[str, int]
    usable: bool = True


@dataclass
class _Fits:
    """How many pods of one shape still fit, by accepted node and by rack."""

    nodes: dict[str, int]
    racks: Counter[str]


class FreeCapacity:
    """The free capacity of usable nodes in racks, minus reservations."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = {node.name: node for node in nodes if node.usable and node.rack}
        self._free = {name: dict(node.free) for name, node in self._nodes.items()}
        self._fits: dict[PodShape, _Fits] = {}
        self._overcommitted: set[str] = set()

    @property
    def usable_nodes(self) -> int:
        """The number of usable nodes in racks, whatever their labels."""
        return len(self._nodes)

    def pods_per_node(self, shape: PodShape) -> Mapping[str, int]:
        """Pods that fit, by usable node that `shape` accepts."""
        return self._of(shape).nodes

    def pods_per_rack(self, shape: PodShape) -> dict[str, int]:
        """Pods that fit, by rack; overcommitted racks are left out."""
        racks = self._of(shape).racks
        return {rack: pods for rack, pods in racks.items() if rack not in self._overcommitted}

    def tightest_node(self, shape: PodShape, rack: str) -> str:
        """The node of `rack` with the least free capacity that fits a pod, ties by name."""
        nodes = self._of(shape).nodes
        return min(
            (pods, name) for name, pods in nodes.items() if pods and self._rack(name) == rack
        )[1]

    def take(self, shape: PodShape, node: str, pods: int = 1) -> None:
        """Reserve `pods` on a node that fits them."""
        free = self._free[node]
        for name, amount in shape.requests:
            free[name] = free.get(name, 0) - amount * pods
        for other, fits in self._fits.items():
            if node in fits.nodes:
                left = other.fitting_pods(free)
                fits.racks[self._rack(node)] += left - fits.nodes[node]
                fits.nodes[node] = left

    def reserve(self, shape: PodShape, pods: int, racks: Collection[str]) -> None:
        """Reserve `pods` in `racks`, on the fullest nodes first.

        If not all fit, the racks are overcommitted and get no further group.
        """
        nodes = self._of(shape).nodes
        for free, name in sorted((free, name) for name, free in nodes.items()):
            here = min(pods, free) if self._rack(name) in racks else 0
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
