"""Flavours as columns: labels as codes, resources as a matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from bigfleet.engine.snapshot import NONE, Flags, Flavour, Floats, Ints, Longs
from bigfleet.model.resources import CPU, MEMORY, PODS

# The first columns of every fleet, present or not.
_LEADING = (CPU, MEMORY, PODS)
CPU_COLUMN, MEMORY_COLUMN, PODS_COLUMN = range(3)
_COMMON = frozenset({*_LEADING, "ephemeral-storage", "storage"})


class LabelColumn(NamedTuple):
    """One label key over all flavours."""

    #: [F] int32, index of `values`; NONE if the label is absent
    codes: Ints
    #: sorted, so that comparing codes compares names
    values: tuple[str, ...]


class FlavourColumns:
    """F flavours as columns."""

    def __init__(self, flavours: Sequence[Flavour]) -> None:
        self._flavours = flavours
        self._labels: dict[str, LabelColumn] = {}
        #: [F] float64, dollars an hour
        self.price = self._floats(lambda flavour: flavour.price_per_hour)
        #: [F] float64
        self.interruption_probability = self._floats(lambda f: f.interruption_probability)
        names = {name for flavour in flavours for name in flavour.allocatable}
        #: R names: CPU, memory, pod slots, then all others sorted
        self.resources = (*_LEADING, *sorted(names.difference(_LEADING)))
        self.column_of = {name: at for at, name in enumerate(self.resources)}
        #: [F, R] int64
        self.allocatable: Longs = np.zeros((len(flavours), len(self.resources)), np.int64)
        for at, flavour in enumerate(flavours):
            for name, amount in flavour.allocatable.items():
                self.allocatable[at, self.column_of[name]] = amount
        #: [F] bool, the Node takes no new pods
        self.limited = np.array([flavour.limited for flavour in flavours], np.bool_)
        #: [R] bool, extended resources such as GPUs, kept for pods that request them
        self.scarce = np.array([_is_scarce(name) for name in self.resources], np.bool_)

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

    def has_other_scarce(self, asked: Flags) -> Flags:
        """Which flavours [F] have a scarce resource that is not among those `asked` [R]."""
        unasked = self.scarce & ~asked
        found: Flags = np.logical_or.reduce(self.allocatable[:, unasked] > 0, axis=1)
        return found

    def _floats(self, value: Callable[[Flavour], float]) -> Floats:
        return np.fromiter((value(f) for f in self._flavours), np.float64, len(self._flavours))


def _is_scarce(resource: str) -> bool:
    return resource not in _COMMON and not resource.startswith("hugepages-")
