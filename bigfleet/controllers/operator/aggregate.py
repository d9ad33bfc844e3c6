"""The sum of a cluster's demand, kept up to date one request at a time. Pure.

Whatever the number of requests, there is one row for each (profile, co-location group), and adding
or removing a request costs the same in a large cluster as in a small one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from bigfleet.api.codec import need_to_wire
from bigfleet.api.v1alpha1.capacity_pb2 import CapacityNeed
from bigfleet.controllers.operator.demand import Demand
from bigfleet.model.need import Need, Profile

K = TypeVar("K", bound=Hashable)


class _Row:
    """One need in the making: sums, and how often each distinct unit occurs."""

    def __init__(self, profile: Profile, group: str) -> None:
        self._profile, self._group = profile, group
        self._sums: Counter[str] = Counter()
        self._units: Counter[tuple[tuple[str, int], ...]] = Counter()
        self._need: Need | None = None
        self._wire: CapacityNeed | None = None

    def count(self, unit: tuple[tuple[str, int], ...], change: int) -> bool:
        """Add (`change` 1) or take away (-1) a request of `unit`; False when none is left."""
        self._need = self._wire = None
        for name, amount in unit:
            self._sums[name] += change * amount
        self._units[unit] += change
        if not self._units[unit]:
            del self._units[unit]
        return bool(self._units)

    def need(self) -> Need:
        if self._need is None:
            sums = {name: amount for name, amount in self._sums.items() if amount}
            self._need = Need(self._profile, sums, self._largest_unit(), self._group)
        return self._need

    def wire(self) -> CapacityNeed:
        if self._wire is None:
            self._wire = need_to_wire(self.need())
        return self._wire

    def _largest_unit(self) -> dict[str, int]:
        largest: dict[str, int] = {}
        for unit in self._units:
            for name, amount in unit:
                if amount > largest.get(name, 0):
                    largest[name] = amount
        return largest


class Aggregate(Generic[K]):
    """Requests by key, summed into needs. `version` grows with every change of the sum."""

    def __init__(self) -> None:
        self._demands: dict[K, Demand] = {}
        self._rows: dict[tuple[str, str], _Row] = {}
        self.version = 0

    def __len__(self) -> int:
        return len(self._demands)

    def put(self, key: K, demand: Demand) -> None:
        """Request `key` now asks for `demand`."""
        before = self._demands.get(key)
        if before is demand:
            return
        if before is not None:
            self._count(before, -1)
        self._demands[key] = demand
        self._count(demand, 1)

    def remove(self, key: K) -> None:
        """Request `key` is gone; harmless if it never counted."""
        demand = self._demands.pop(key, None)
        if demand is not None:
            self._count(demand, -1)

    def __contains__(self, key: object) -> bool:
        return key in self._demands

    def keys(self) -> Sequence[K]:
        """Every request that counts."""
        return list(self._demands)

    def needs(self) -> list[Need]:
        """One need for each row, by its key, so that equal demands give equal roll-ups."""
        return [self._rows[key].need() for key in sorted(self._rows)]

    def wire(self) -> list[CapacityNeed]:
        """`needs` as messages; rows that did not change keep theirs. Not to be modified."""
        return [self._rows[key].wire() for key in sorted(self._rows)]

    def _count(self, demand: Demand, change: int) -> None:
        self.version += 1
        key = demand.profile.fingerprint, demand.group
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = _Row(demand.profile, demand.group)
        if not row.count(demand.unit, change):
            del self._rows[key]
