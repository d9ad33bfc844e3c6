"""A cluster's aggregated demand, updated one request at a time. Pure.

There is one row for each (profile, group), and adding or removing a request takes constant time.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from bigfleet.api.v1alpha1.capacity_pb2 import CapacityNeed
from bigfleet.controllers.operator.merging import Amounts
from bigfleet.controllers.operator.need_builder import NeedBuilder
from bigfleet.controllers.operator.request_demand import RequestDemand
from bigfleet.controllers.operator.size_classes import MAX_CLASSES, MergeCandidate, allocate_classes
from bigfleet.model import resources
from bigfleet.model.group import group_text
from bigfleet.model.need import Need

K = TypeVar("K", bound=Hashable)

# The budget for up to ten needs. Keeping it with more needs would require ever coarser sizes, which
# cost machines; so each further need adds bytes, for some ten classes of sizes, to the budget of
# every need, until it has MAX_CLASSES.
_SMALL_NEED_COUNT, _MAX_BYTES, _EXTRA_BYTES_PER_NEED = 10, 3_900, 80
# Over budget, classes are reduced until this share is free; they grow again only when much of the
# budget is unused.
_SPARE_SHARES, _UNUSED_SHARE = (0.05, 0.15, 0.25), 0.4


class NeedKey(NamedTuple):
    """The key of a row."""

    fingerprint: str
    #: the text of the group
    group: str


class RollUpContent(NamedTuple):
    """The needs of a roll-up, the rows it omits as their gangs are incomplete, and the row of each
    need.
    """

    needs: list[CapacityNeed]
    incomplete: frozenset[NeedKey]
    rows: Sequence[NeedKey] = ()


class Aggregate(Generic[K]):
    """Requests by key, aggregated into needs. `version` increases with every change."""

    def __init__(self) -> None:
        self._demands: dict[K, RequestDemand] = {}
        self._builders: dict[NeedKey, NeedBuilder[K]] = {}
        self._limits: Mapping[NeedKey, int] = {}
        self.version = 0

    def __len__(self) -> int:
        return len(self._demands)

    def put(self, key: K, demand: RequestDemand, members: int = 0, created: float = 0.0) -> None:
        """Set the demand of request `key`; `members` is the size of its gang, 0 if unknown."""
        before = self._demands.get(key)
        if before is demand:
            return
        if before is not None:
            self._subtract(key, before)
        self._demands[key] = demand
        self.version += 1
        self._builder(demand).put(key, demand.unit, created, members)

    def remove(self, key: K) -> None:
        """Remove request `key`, if it is there."""
        demand = self._demands.pop(key, None)
        if demand is not None:
            self._subtract(key, demand)

    def __contains__(self, key: object) -> bool:
        return key in self._demands

    def keys(self) -> Sequence[K]:
        """Every request that counts."""
        return list(self._demands)

    def needs(self) -> list[Need]:
        """The need of each row, sorted by key, with all distinct sizes."""
        return [self._builders[key].need() for key in sorted(self._builders)]

    def content(self, now: float) -> RollUpContent:
        """The needs as messages, without incomplete gangs, and with few enough classes of sizes to
        stay within the budget; `now` in monotonic seconds.

        Rows that did not change keep their message; do not modify it.
        """
        incomplete = frozenset(key for key, row in self._builders.items() if row.incomplete(now))
        rows = {key: self._builders[key] for key in sorted(self._builders) if key not in incomplete}
        self._enforce_budget(rows)
        return RollUpContent([row.wire() for row in rows.values()], incomplete, tuple(rows))

    def mark_all_complete(self) -> None:
        """Treat every gang as complete, since it existed before this process."""
        for row in self._builders.values():
            row.mark_complete()

    def need_key_of(self, key: K) -> NeedKey:
        """The row of request `key`."""
        return _need_key(self._demands[key])

    def requests_of(self, row: NeedKey, size: Amounts | None) -> list[K] | None:
        """The requests that a size of the last reported need stands for, newest first; of all sizes
        for None. None for a size that is not in it, or a row that no longer exists.
        """
        found = self._builders.get(row)
        return None if found is None else found.newest(size)

    def _enforce_budget(self, rows: Mapping[NeedKey, NeedBuilder[K]]) -> None:
        """Limit the classes of sizes if they exceed the budget."""
        taken, others = self._apply_limits(rows, self._limits)
        most = _size_budget(len(rows), others)
        if taken <= most and not (self._limits and taken < (1 - _UNUSED_SHARE) * most):
            return
        # The encoded length of numbers is not known in advance, so the first try may not suffice.
        for spare in _SPARE_SHARES:
            candidates = self._merge_candidates(rows)
            limits = allocate_classes(candidates, (1 - spare) * most)
            self._limits = {
                k: limit for k, limit in limits.items() if limit < candidates[k].classes
            }
            if self._apply_limits(rows, self._limits)[0] <= most:
                return

    @staticmethod
    def _apply_limits(
        rows: Mapping[NeedKey, NeedBuilder[K]], limits: Mapping[NeedKey, int]
    ) -> tuple[int, int]:
        """The bytes that sizes take under these limits, and those of all other fields."""
        for key, row in rows.items():
            row.limit(limits.get(key, MAX_CLASSES))
        taken = [row.bytes() for row in rows.values()]
        return sum(sizes for sizes, _ in taken), sum(others for _, others in taken)

    def _merge_candidates(
        self, rows: Mapping[NeedKey, NeedBuilder[K]]
    ) -> Mapping[NeedKey, MergeCandidate]:
        demands = {key: row.need().aggregate for key, row in rows.items()}
        total = resources.add(demands.values())
        weights = {
            key: sum(amount / total[name] for name, amount in demand.items()) / len(total)
            for key, demand in demands.items()
        }
        return {key: row.merge_candidate(weights[key]) for key, row in rows.items()}

    def _builder(self, demand: RequestDemand) -> NeedBuilder[K]:
        key = _need_key(demand)
        row = self._builders.get(key)
        if row is None:
            row = self._builders[key] = NeedBuilder(demand.profile, demand.group)
        return row

    def _subtract(self, key: K, demand: RequestDemand) -> None:
        self.version += 1
        if not self._builder(demand).remove(key, demand.unit):
            del self._builders[_need_key(demand)]


def _size_budget(needs: int, others: int) -> float:
    """The budget in bytes for the sizes of so many needs, whose other fields take `others`."""
    if needs <= _SMALL_NEED_COUNT:
        return _MAX_BYTES - others
    each = max(0.0, _MAX_BYTES / _SMALL_NEED_COUNT - others / needs)
    return needs * (each + (needs - _SMALL_NEED_COUNT) * _EXTRA_BYTES_PER_NEED)


def _need_key(demand: RequestDemand) -> NeedKey:
    return NeedKey(demand.profile.fingerprint, group_text(demand.group))
