"""Flavours as columns: labels as codes, resources as a matrix."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.snapshot import NONE, Bytes, Flags, Flavour, Floats, Ints, Longs
from bigfleet.model.ceiling import micros
from bigfleet.model.resources import CPU, MEMORY, PODS

# The first columns of every fleet, present or not.
_LEADING = (CPU, MEMORY, PODS)
CPU_COLUMN, MEMORY_COLUMN, PODS_COLUMN = range(3)
_COMMON = frozenset({*_LEADING, "ephemeral-storage", "storage"})
# Dollars an hour that a machine counts for at most, so that the sum over a fleet fits into 64 bits.
_MAX_PRICE = 1e6
# Demand that changes for days asks for ever new conditions.
_MAX_REMEMBERED_BYTES = 1 << 28

_Array = TypeVar("_Array", bound=NDArray[Any])
_Value = TypeVar("_Value")


class LabelColumn(NamedTuple):
    """One label key over all flavours."""

    #: [F] int32, index of `values`; NONE if the label is absent
    codes: Ints
    #: sorted, so that comparing codes compares names
    values: tuple[str, ...]


class FlavourColumns(Sequence[Flavour]):
    """F flavours, also as columns.

    Immutable but for what it remembers: columns are computed on first use, and whoever builds
    fleets keeps one of these for as long as the flavours are the same.
    """

    def __init__(self, flavours: Iterable[Flavour]) -> None:
        self._flavours = tuple(flavours)
        self._labels: dict[str, LabelColumn] = {}
        self._remembered: dict[Hashable, Any] = {}
        self._remembered_bytes = 0
        self._last: dict[str, tuple[Hashable, Any]] = {}
        #: validated once; see `checks.validation`
        self.is_valid = False

    def __len__(self) -> int:
        return len(self._flavours)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._flavours[index]

    def __iter__(self) -> Iterator[Flavour]:
        return iter(self._flavours)

    @cached_property
    def price(self) -> Floats:
        """[F] float64, dollars an hour."""
        return self._floats(lambda flavour: flavour.price_per_hour)

    @cached_property
    def price_rank(self) -> Longs:
        """[F] int64, the place of the price among all distinct prices."""
        return np.unique(self.price, return_inverse=True)[1].astype(np.int64)

    @cached_property
    def micros(self) -> Longs:
        """[F] int64, micro-dollars an hour, bounded so that a fleet's sum fits into 64 bits."""
        prices = (micros(min(flavour.price_per_hour, _MAX_PRICE)) for flavour in self)
        return np.fromiter(prices, np.int64, len(self))

    @cached_property
    def interruption_probability(self) -> Floats:
        """[F] float64."""
        return self._floats(lambda flavour: flavour.interruption_probability)

    @cached_property
    def resources(self) -> tuple[str, ...]:
        """R names: CPU, memory, pod slots, then all others sorted."""
        names = {name for flavour in self for name in flavour.allocatable}
        return (*_LEADING, *sorted(names.difference(_LEADING)))

    @cached_property
    def column_of(self) -> dict[str, int]:
        """By name, the column of a resource."""
        return {name: at for at, name in enumerate(self.resources)}

    @cached_property
    def allocatable(self) -> Longs:
        """[F, R] int64."""
        amounts = np.zeros((len(self), len(self.resources)), np.int64)
        for at, flavour in enumerate(self):
            for name, amount in flavour.allocatable.items():
                amounts[at, self.column_of[name]] = amount
        amounts.flags.writeable = False  # as what is remembered
        return amounts

    @cached_property
    def limited(self) -> Flags:
        """[F] bool, the Node takes no new pods."""
        return np.fromiter((flavour.limited for flavour in self), np.bool_, len(self))

    @cached_property
    def capacity_type(self) -> Bytes:
        """[F] uint8, CapacityType."""
        types = (int(flavour.capacity_type) for flavour in self)
        return np.fromiter(types, np.uint8, len(self))

    @cached_property
    def elastic(self) -> Flags:
        """[F] bool, idle machines are returned to the provider."""
        elastic = (flavour.capacity_type.elastic for flavour in self)
        return np.fromiter(elastic, np.bool_, len(self))

    @cached_property
    def scarce(self) -> Flags:
        """[R] bool, extended resources such as GPUs, kept for pods that request them."""
        return np.array([_is_scarce(name) for name in self.resources], np.bool_)

    def label(self, key: str) -> LabelColumn:
        """The column of label `key`."""
        if key not in self._labels:
            flavours, values = self._values_of_labels.get(key, ([], []))
            names = tuple(sorted({*values}))
            code_of = {name: code for code, name in enumerate(names)}
            codes = np.full(len(self), NONE, np.int32)
            codes[flavours] = [code_of[value] for value in values]
            self._labels[key] = LabelColumn(codes, names)
        return self._labels[key]

    @cached_property
    def _values_of_labels(self) -> dict[str, tuple[list[int], list[str]]]:
        """By key: the flavours that have the label, and the value that each has."""
        # Needs ask for hundreds of keys, most of which few flavours have.
        found: dict[str, tuple[list[int], list[str]]] = {}
        for at, flavour in enumerate(self):
            for key, value in flavour.labels.items():
                flavours, values = found.setdefault(key, ([], []))
                flavours.append(at)
                values.append(value)
        return found

    def remember(self, key: Hashable, compute: Callable[[], _Array]) -> _Array:
        """The array that `compute` returned when `key` was first asked for; not to be changed."""
        found = self._remembered.get(key)
        if found is None:
            found = compute()
            found.flags.writeable = False
            self._remembered_bytes += found.nbytes
            if self._remembered_bytes > _MAX_REMEMBERED_BYTES:
                self._remembered.clear()
                self._remembered_bytes = found.nbytes
            self._remembered[key] = found
        return found

    def remember_last(self, key: tuple[str, Hashable], compute: Callable[[], _Value]) -> _Value:
        """As `remember`, for what is large or often another: only the last one is kept of those
        with the same name, the first part of `key`.
        """
        name, rest = key
        if name not in self._last or self._last[name][0] != rest:
            self._last[name] = rest, compute()
        found: _Value = self._last[name][1]
        return found

    def has_other_scarce(self, asked: Flags) -> Flags:
        """Which flavours [F] have a scarce resource that is not among those `asked` [R]."""
        unasked = self.scarce & ~asked
        found: Flags = np.logical_or.reduce(self.allocatable[:, unasked] > 0, axis=1)
        return found

    def _floats(self, value: Callable[[Flavour], float]) -> Floats:
        return np.fromiter((value(flavour) for flavour in self), np.float64, len(self))


class LastColumns:
    """Flavours as columns: the same object as last time, if the flavours are the same."""

    def __init__(self) -> None:
        self._last = FlavourColumns(())

    def of(self, flavours: Sequence[Flavour]) -> FlavourColumns:
        """`flavours` as columns."""
        if list(self._last) != list(flavours):
            self._last = FlavourColumns(flavours)
        return self._last


def columns_of(flavours: Sequence[Flavour]) -> FlavourColumns:
    """`flavours` as columns; the same object if they are already."""
    return flavours if isinstance(flavours, FlavourColumns) else FlavourColumns(flavours)


def _is_scarce(resource: str) -> bool:
    return resource not in _COMMON and not resource.startswith("hugepages-")
