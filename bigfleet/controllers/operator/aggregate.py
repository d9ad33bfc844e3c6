"""The sum of a cluster's demand, kept up to date one request at a time. Pure.

Whatever the number of requests, there is one row for each (profile, co-location group), and adding
or removing a request costs the same in a large cluster as in a small one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from bigfleet.api.codec import need_to_wire
from bigfleet.api.v1alpha1.capacity_pb2 import CapacityNeed
from bigfleet.controllers.operator.demand import Demand
from bigfleet.model.need import Need, Profile, sizes_of

K = TypeVar("K", bound=Hashable)
# A gang that stops growing before it is whole (a quota, a failing webhook) is told as it is.
PATIENCE_SECONDS = 30.0


class RowKey(NamedTuple):
    """What a row is for."""

    fingerprint: str
    group: str


class Told(NamedTuple):
    """What a roll-up says, and the rows whose gangs are not whole yet and that it leaves out."""

    needs: list[CapacityNeed]
    gathering: frozenset[RowKey]


class _Row:
    """One need in the making: sums, and how often each distinct unit occurs.

    A gang's requests come one by one. Told at each size it passes through, it would be given
    machines for the first of them in a domain that has no room for the rest, and the pods bound
    there would hold the others to it. So it is told once all `members` have asked.
    """

    def __init__(self, profile: Profile, group: str) -> None:
        self._profile, self._group = profile, group
        self._members = 0
        self._whole = False
        self._grown, self._grown_at = False, 0.0
        self._units: Counter[tuple[tuple[str, int], ...]] = Counter()
        self._need: Need | None = None
        self._wire: CapacityNeed | None = None

    def count(self, unit: tuple[tuple[str, int], ...], change: int) -> bool:
        """Add (`change` 1) or take away (-1) a request of `unit`; False when none is left."""
        self._need = self._wire = None
        self._units[unit] += change
        if not self._units[unit]:
            del self._units[unit]
        return bool(self._units)

    def grow(self, unit: tuple[tuple[str, int], ...], members: int) -> None:
        """Add a request of a gang that will have `members`; 0 where nobody knows."""
        self.count(unit, 1)
        self._members = max(self._members, members)
        self._grown = True

    def gathering(self, now: float) -> bool:
        """Whether requests of the gang are still to come; once not, never again."""
        if self._grown:
            self._grown, self._grown_at = False, now
        complete = self._units.total() >= self._members
        self._whole |= complete or now - self._grown_at >= PATIENCE_SECONDS
        return not self._whole

    def close(self) -> None:
        """Wait for no more of the gang."""
        self._whole = True

    def need(self) -> Need:
        if self._need is None:
            sizes = sizes_of((dict(unit), count) for unit, count in self._units.items())
            self._need = Need(self._profile, sizes, self._group)
        return self._need

    def wire(self) -> CapacityNeed:
        if self._wire is None:
            self._wire = need_to_wire(self.need())
        return self._wire


class Aggregate(Generic[K]):
    """Requests by key, summed into needs. `version` grows with every change of the sum."""

    def __init__(self) -> None:
        self._demands: dict[K, Demand] = {}
        self._rows: dict[RowKey, _Row] = {}
        self.version = 0

    def __len__(self) -> int:
        return len(self._demands)

    def put(self, key: K, demand: Demand, members: int = 0) -> None:
        """Request `key` asks for `demand`, as one of `members` of its group where that is known."""
        before = self._demands.get(key)
        if before is demand:
            return
        if before is not None:
            self._take_away(before)
        self._demands[key] = demand
        self.version += 1
        row = self._row(demand)
        row.grow(demand.unit, members)

    def remove(self, key: K) -> None:
        """Request `key` is gone; harmless if it never counted."""
        demand = self._demands.pop(key, None)
        if demand is not None:
            self._take_away(demand)

    def __contains__(self, key: object) -> bool:
        return key in self._demands

    def keys(self) -> Sequence[K]:
        """Every request that counts."""
        return list(self._demands)

    def needs(self) -> list[Need]:
        """One need for each row, by its key, so that equal demands give equal roll-ups."""
        return [self._rows[key].need() for key in sorted(self._rows)]

    def told(self, now: float) -> Told:
        """`needs` as messages, without the gangs that are gathering; `now` in seconds, monotonic.

        Rows that did not change keep their message; it is not to be modified.
        """
        gathering = frozenset(key for key, row in self._rows.items() if row.gathering(now))
        needs = [self._rows[key].wire() for key in sorted(self._rows) if key not in gathering]
        return Told(needs, gathering)

    def close_all(self) -> None:
        """Every gang is taken for whole: what is here was here before us."""
        for row in self._rows.values():
            row.close()

    def demands(self) -> Mapping[K, Demand]:
        """What each request that counts asks for; not to be modified."""
        return self._demands

    def row_of(self, key: K) -> RowKey:
        """The row in which request `key` counts."""
        return _row_key(self._demands[key])

    def _row(self, demand: Demand) -> _Row:
        key = _row_key(demand)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = _Row(demand.profile, demand.group)
        return row

    def _take_away(self, demand: Demand) -> None:
        self.version += 1
        if not self._row(demand).count(demand.unit, -1):
            del self._rows[_row_key(demand)]


def _row_key(demand: Demand) -> RowKey:
    return RowKey(demand.profile.fingerprint, demand.group)
