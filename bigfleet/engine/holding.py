"""How much of a need one machine of each flavour can hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.snapshot import Flags, Longs
from bigfleet.model.need import Need

Size = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Holding:
    """`units` [F, R]: what each flavour holds of the need's R resources, in whole min_units where
    the need names one. `usable` [F]: holds min_unit at least once, and anything at all.
    """

    units: Longs
    usable: Flags


def wanted(need: Need) -> tuple[tuple[str, ...], list[int]]:
    """The resources that `need` asks for, sorted, and how much of each."""
    aggregate = need.aggregate
    resources = tuple(sorted([name for name, amount in aggregate.items() if amount > 0]))
    return resources, [aggregate[name] for name in resources]


def unit_sizes(need: Need) -> Size:
    """What one unit of `need` takes, by resource name."""
    return tuple(sorted([size for size in need.largest.items() if size[1] > 0]))


def machine_units(
    allocatable: Mapping[str, int], min_unit: Mapping[str, int], resources: tuple[str, ...]
) -> list[int]:
    """What one machine holds of `resources`; empty when it does not hold `min_unit` once.

    A resource outside min_unit counts as it is. Whole units are a cautious count when pods differ
    in size: the real scheduler may fit more, never less.
    """
    unit = {name: size for name, size in min_unit.items() if size > 0}
    times = min((allocatable.get(name, 0) // size for name, size in unit.items()), default=1)
    if times == 0:
        return []
    return [times * unit[r] if r in unit else allocatable.get(r, 0) for r in resources]


class Holdings:
    """Remembers, for one decision, what flavours hold of needs with the same unit and resources."""

    def __init__(self, columns: FlavourColumns) -> None:
        self._columns = columns
        self._known: dict[tuple[Size, tuple[str, ...]], Holding] = {}

    def of(self, need: Need, resources: tuple[str, ...]) -> Holding:
        """What each flavour holds of `need`, whose `resources` are those of `wanted`."""
        unit = unit_sizes(need)
        key = unit, resources
        if key not in self._known:
            self._known[key] = self._compute(dict(unit), resources)
        return self._known[key]

    def _compute(self, unit: Mapping[str, int], resources: tuple[str, ...]) -> Holding:
        whole = [self._columns.allocatable(name) // size for name, size in unit.items()]
        times = np.minimum.reduce(whole) if whole else np.ones(len(self._columns), np.int64)
        units = np.zeros((len(self._columns), len(resources)), np.int64)
        for at, name in enumerate(resources):
            plain = self._columns.allocatable(name)
            units[:, at] = times * unit[name] if name in unit else plain
        return Holding(units, (times > 0) & (units > 0).any(axis=1))
