"""What flavours have, turned sideways: one array per label key and per resource.

Built on first use and kept for one decision, so that each label or resource is read once however
many needs ask for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from bigfleet.engine.snapshot import NONE, Flavour, Floats, Ints, Longs


class LabelColumn(NamedTuple):
    """One label key over all flavours: `codes` index `values` (NONE where the key is absent).

    `values` are sorted, so that comparing codes compares names.
    """

    codes: Ints
    values: tuple[str, ...]


class FlavourColumns:
    """Columns over F flavours, in flavour order."""

    def __init__(self, flavours: Sequence[Flavour]) -> None:
        self._flavours = flavours
        self._labels: dict[str, LabelColumn] = {}
        self._allocatable: dict[str, Longs] = {}
        self.price = self._floats(lambda flavour: flavour.price_per_hour)
        self.interruption_probability = self._floats(lambda f: f.interruption_probability)
        self.resources = sorted({name for flavour in flavours for name in flavour.allocatable})

    def __len__(self) -> int:
        return len(self._flavours)

    def label(self, key: str) -> LabelColumn:
        """The column of label `key`."""
        if key not in self._labels:
            values = [flavour.labels.get(key) for flavour in self._flavours]
            names = tuple(sorted({value for value in values if value is not None}))
            code_of: dict[str | None, int] = {name: code for code, name in enumerate(names)}
            codes = np.fromiter((code_of.get(v, NONE) for v in values), np.int32, len(values))
            self._labels[key] = LabelColumn(codes, names)
        return self._labels[key]

    def allocatable(self, resource: str) -> Longs:
        """How much of `resource` a machine of each flavour has; 0 where it has none."""
        if resource not in self._allocatable:
            amounts = (flavour.allocatable.get(resource, 0) for flavour in self._flavours)
            self._allocatable[resource] = np.fromiter(amounts, np.int64, len(self._flavours))
        return self._allocatable[resource]

    def _floats(self, value: Callable[[Flavour], float]) -> Floats:
        return np.fromiter((value(f) for f in self._flavours), np.float64, len(self._flavours))
