"""Finds the shapes of pods that a term about other pods selects. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from bigfleet.controllers.pod_controller.shapes import Peers, Shape

K = TypeVar("K")


class LabelIndex:
    """Finds the shapes that match a selector without scanning all of them."""

    def __init__(self) -> None:
        self._by_pair: dict[tuple[str, str, str], set[Shape]] = {}
        self._by_namespace: dict[str, set[Shape]] = {}

    def add(self, shape: Shape) -> None:
        """Add `shape`."""
        self._by_namespace.setdefault(shape.namespace, set()).add(shape)
        for pair in shape.labels.items():
            self._by_pair.setdefault((shape.namespace, *pair), set()).add(shape)

    def remove(self, shape: Shape) -> None:
        """Remove `shape`."""
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
