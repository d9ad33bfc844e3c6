"""The sum of a cluster's demand, kept up to date one request at a time. Pure.

Whatever the number of requests, there is one row for each (profile, group), and adding or removing
a request costs the same in a large cluster as in a small one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from bigfleet.api.v1alpha1.capacity_pb2 import CapacityNeed
from bigfleet.controllers.operator.demand import Demand
from bigfleet.controllers.operator.merging import Amounts
from bigfleet.controllers.operator.row import Row
from bigfleet.controllers.operator.size_classes import MOST_CLASSES, Pressed, fitting
from bigfleet.model import resources
from bigfleet.model.need import Need

K = TypeVar("K", bound=Hashable)

# Up to ten needs take so many bytes at most. With more, that could only be had by ever coarser
# sizes, which cost machines; so for each further need, each of them may take so many bytes more,
# some ten classes of sizes, until it has MOST_CLASSES.
_FEW_NEEDS, _MOST_BYTES, _BYTES_MORE = 10, 3_900, 80
# When there is too much, this much room is left for what is to come; only when much is not used,
# there may be more classes again.
_SPARE_SHARES, _UNUSED_SHARE = (0.05, 0.15, 0.25), 0.4


class RowKey(NamedTuple):
    """What a row is for."""

    fingerprint: str
    group: str


class Told(NamedTuple):
    """What a roll-up says, the rows whose gangs are not whole yet and that it leaves out, and of
    which row each need is.
    """

    needs: list[CapacityNeed]
    gathering: frozenset[RowKey]
    rows: Sequence[RowKey] = ()


class Aggregate(Generic[K]):
    """Requests by key, summed into needs. `version` grows with every change of the sum."""

    def __init__(self) -> None:
        self._demands: dict[K, Demand] = {}
        self._rows: dict[RowKey, Row[K]] = {}
        self._limits: Mapping[RowKey, int] = {}
        self.version = 0

    def __len__(self) -> int:
        return len(self._demands)

    def put(self, key: K, demand: Demand, members: int = 0, created: float = 0.0) -> None:
        """Request `key` asks for `demand`, as one of `members` of its group where that is known.

        `created` is when it was made, in seconds.
        """
        before = self._demands.get(key)
        if before is demand:
            return
        if before is not None:
            self._take_away(key, before)
        self._demands[key] = demand
        self.version += 1
        self._row(demand).put(key, demand.unit, created, members)

    def remove(self, key: K) -> None:
        """Request `key` is gone; harmless if it never counted."""
        demand = self._demands.pop(key, None)
        if demand is not None:
            self._take_away(key, demand)

    def __contains__(self, key: object) -> bool:
        return key in self._demands

    def keys(self) -> Sequence[K]:
        """Every request that counts."""
        return list(self._demands)

    def needs(self) -> list[Need]:
        """One need for each row, by its key, with every size as it was asked for."""
        return [self._rows[key].need() for key in sorted(self._rows)]

    def told(self, now: float) -> Told:
        """`needs` as messages, without the gangs that are gathering, and with so few classes of
        sizes that they are small; `now` in seconds, monotonic.

        Rows that did not change keep their message; it is not to be modified.
        """
        gathering = frozenset(key for key, row in self._rows.items() if row.gathering(now))
        rows = {key: self._rows[key] for key in sorted(self._rows) if key not in gathering}
        self._fit(rows)
        return Told([row.wire() for row in rows.values()], gathering, tuple(rows))

    def close_all(self) -> None:
        """Every gang is taken for whole: what is here was here before us."""
        for row in self._rows.values():
            row.close()

    def row_of(self, key: K) -> RowKey:
        """The row in which request `key` counts."""
        return _row_key(self._demands[key])

    def requests_of(self, row: RowKey, size: Amounts | None) -> list[K] | None:
        """The requests that a size in the last report of a need stands for, newest first; of all
        sizes for None. None for a size that is not in it, or a need that is not there any more.
        """
        found = self._rows.get(row)
        return None if found is None else found.newest(size)

    def _fit(self, rows: Mapping[RowKey, Row[K]]) -> None:
        """Limit the classes of sizes if all of them together take too much."""
        taken, others = self._limited(rows, self._limits)
        most = _room(len(rows), others)
        if taken <= most and not (self._limits and taken < (1 - _UNUSED_SHARE) * most):
            return
        # How long a number will be is not known before: where the first try is not enough, again.
        for spare in _SPARE_SHARES:
            pressed = self._pressed(rows)
            limits = fitting(pressed, (1 - spare) * most)
            self._limits = {k: limit for k, limit in limits.items() if limit < pressed[k].classes}
            if self._limited(rows, self._limits)[0] <= most:
                return

    @staticmethod
    def _limited(rows: Mapping[RowKey, Row[K]], limits: Mapping[RowKey, int]) -> tuple[int, int]:
        """How many bytes classes of sizes take under these limits, and how many all the rest."""
        for key, row in rows.items():
            row.limit(limits.get(key, MOST_CLASSES))
        taken = [row.bytes() for row in rows.values()]
        return sum(sizes for sizes, _ in taken), sum(others for _, others in taken)

    def _pressed(self, rows: Mapping[RowKey, Row[K]]) -> Mapping[RowKey, Pressed]:
        demands = {key: row.need().aggregate for key, row in rows.items()}
        total = resources.add(demands.values())
        weights = {
            key: sum(amount / total[name] for name, amount in demand.items()) / len(total)
            for key, demand in demands.items()
        }
        return {key: row.pressed(weights[key]) for key, row in rows.items()}

    def _row(self, demand: Demand) -> Row[K]:
        key = _row_key(demand)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = Row(demand.profile, demand.group)
        return row

    def _take_away(self, key: K, demand: Demand) -> None:
        self.version += 1
        if not self._row(demand).remove(key, demand.unit):
            del self._rows[_row_key(demand)]


def _room(needs: int, others: int) -> float:
    """How many bytes the sizes of so many needs may take, whose rest takes `others`."""
    if needs <= _FEW_NEEDS:
        return _MOST_BYTES - others
    each = max(0.0, _MOST_BYTES / _FEW_NEEDS - others / needs)
    return needs * (each + (needs - _FEW_NEEDS) * _BYTES_MORE)


def _row_key(demand: Demand) -> RowKey:
    return RowKey(demand.profile.fingerprint, demand.group)
