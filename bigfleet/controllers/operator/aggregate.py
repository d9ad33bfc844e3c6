"""The sum of a cluster's demand, kept up to date one request at a time. Pure.

Whatever the number of requests, there is one row for each (profile, group), and adding or removing
a request costs the same in a large cluster as in a small one.
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
from bigfleet.model.need import Need

K = TypeVar("K", bound=Hashable)

# Up to ten needs take so many bytes at most. With more, that could only be had by ever coarser
# sizes, which cost machines; so for each further need, each of them may take so many bytes more,
# some ten classes of sizes, until it has MOST_CLASSES.
_SMALL_NEED_COUNT, _MAX_BYTES, _EXTRA_BYTES_PER_NEED = 10, 3_900, 80
# When there is too much, this much room is left for what is to come; only when much is not used,
# there may be more classes again.
_SPARE_SHARES, _UNUSED_SHARE = (0.05, 0.15, 0.25), 0.4


class NeedKey(NamedTuple):
    """What a row is for."""

    fingerprint: str
    group: str


class RollUpContent(NamedTuple):
    """What a roll-up says, the rows whose gangs are not whole yet and that it leaves out, and of
    which row each need is.
    """

    needs: list[CapacityNeed]
    incomplete: frozenset[NeedKey]
    rows: Sequence[NeedKey] = ()


class Aggregate(Generic[K]):
    """Requests by key, summed into needs. `version` grows with every change of the sum."""

    def __init__(self) -> None:
        self._demands: dict[K, RequestDemand] = {}
        self._builders: dict[NeedKey, NeedBuilder[K]] = {}
        self._limits: Mapping[NeedKey, int] = {}
        self.version = 0

    def __len__(self) -> int:
        return len(self._demands)

    def put(self, key: K, demand: RequestDemand, members: int = 0, created: float = 0.0) -> None:
        """Request `key` asks for `demand`, as one of `members` of its group where that is known.

        `created` is when it was made, in seconds.
        """
        before = self._demands.get(key)
        if before is demand:
            return
        if before is not None:
            self._subtract(key, before)
        self._demands[key] = demand
        self.version += 1
        self._builder(demand).put(key, demand.unit, created, members)

    def remove(self, key: K) -> None:
        """Request `key` is gone; harmless if it never counted."""
        demand = self._demands.pop(key, None)
        if demand is not None:
            self._subtract(key, demand)

    def __contains__(self, key: object) -> bool:
        return key in self._demands

    def keys(self) -> Sequence[K]:
        """Every request that counts."""
        return list(self._demands)

    def needs(self) -> list[Need]:
        """One need for each row, by its key, with every size as it was asked for."""
        return [self._builders[key].need() for key in sorted(self._builders)]

    def content(self, now: float) -> RollUpContent:
        """`needs` as messages, without the gangs that are gathering, and with so few classes of
        sizes that they are small; `now` in seconds, monotonic.

        Rows that did not change keep their message; it is not to be modified.
        """
        incomplete = frozenset(key for key, row in self._builders.items() if row.incomplete(now))
        rows = {key: self._builders[key] for key in sorted(self._builders) if key not in incomplete}
        self._enforce_budget(rows)
        return RollUpContent([row.wire() for row in rows.values()], incomplete, tuple(rows))

    def mark_all_complete(self) -> None:
        """Every gang is taken for whole: what is here was here before us."""
        for row in self._builders.values():
            row.mark_complete()

    def need_key_of(self, key: K) -> NeedKey:
        """The row in which request `key` counts."""
        return _need_key(self._demands[key])

    def requests_of(self, row: NeedKey, size: Amounts | None) -> list[K] | None:
        """The requests that a size in the last report of a need stands for, newest first; of all
        sizes for None. None for a size that is not in it, or a need that is not there any more.
        """
        found = self._builders.get(row)
        return None if found is None else found.newest(size)

    def _enforce_budget(self, rows: Mapping[NeedKey, NeedBuilder[K]]) -> None:
        """Limit the classes of sizes if all of them together take too much."""
        taken, others = self._apply_limits(rows, self._limits)
        most = _size_budget(len(rows), others)
        if taken <= most and not (self._limits and taken < (1 - _UNUSED_SHARE) * most):
            return
        # How long a number will be is not known before: where the first try is not enough, again.
        for spare in _SPARE_SHARES:
            merge_candidate = self._merge_candidates(rows)
            limits = allocate_classes(merge_candidate, (1 - spare) * most)
            self._limits = {
                k: limit for k, limit in limits.items() if limit < merge_candidate[k].classes
            }
            if self._apply_limits(rows, self._limits)[0] <= most:
                return

    @staticmethod
    def _apply_limits(
        rows: Mapping[NeedKey, NeedBuilder[K]], limits: Mapping[NeedKey, int]
    ) -> tuple[int, int]:
        """How many bytes classes of sizes take under these limits, and how many all the rest."""
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
    """How many bytes the sizes of so many needs may take, whose rest takes `others`."""
    if needs <= _SMALL_NEED_COUNT:
        return _MAX_BYTES - others
    each = max(0.0, _MAX_BYTES / _SMALL_NEED_COUNT - others / needs)
    return needs * (each + (needs - _SMALL_NEED_COUNT) * _EXTRA_BYTES_PER_NEED)


def _need_key(demand: RequestDemand) -> NeedKey:
    return NeedKey(demand.profile.fingerprint, demand.group)
