"""Needs as columns: one row per need, and one per size of each need.

A decision touches needs through these columns only, so that its cost per need is that of a few
vector operations. Whoever builds demands derives the columns of the next one from the last: only
needs that are new are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.folded_needs import FoldedNeeds
from bigfleet.engine.snapshot import NONE, Bytes, Flags, Ints, Longs
from bigfleet.model.errors import InvalidInput
from bigfleet.model.group import Additional, FoldedGangs
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.need import Need, Profile, Size

# Read needs keep the columns of those that are gone until these are this many times as many.
_MAX_GARBAGE = 2

_Column = TypeVar("_Column", bound=NDArray[Any])

# One need.
_ROW = np.dtype([
    # effective priority
    ("priority", np.int64),
    # which is lower than that of its pods
    ("capped", np.bool_),
    # index of `profiles`
    ("profile", np.int32),
    # penalty buckets
    ("interruption_bucket", np.uint8),
    ("reclamation_bucket", np.uint8),
    # requested beyond what exists
    ("additional", np.bool_),
    # all pods share a domain of one topology key
    ("gang", np.bool_),
    # each pod is a whole gang that folds
    ("folded_gangs", np.bool_),
    # at most one pod per host
    ("apart", np.bool_),
    # no machine could ever hold all of it
    ("contradictory", np.bool_),
    # the need's first row among the sizes, and how many there are
    ("first_size", np.int64),
    ("sizes", np.int64),
])  # fmt: skip


class _Reader:
    """Reads needs one by one; a need that was read before is not read again."""

    def __init__(self) -> None:
        self.needs: list[Need] = []
        self.folded = FoldedNeeds()
        self.row_of: dict[int, int] = {}
        self.profiles: list[Profile] = []
        self.valid_profiles = 0
        self._profile_numbers: dict[str, int] = {}
        #: by name of a resource, its column of `amounts`
        self.column_of: dict[str, int] = {}
        # Those that are new, until they are appended to the columns.
        self._new: list[tuple[object, ...]] = []
        self._new_sizes: list[Size] = []
        self._number_of_sizes = 0
        self.rows = np.empty(0, _ROW)
        self.amounts: Longs = np.empty((0, 0), np.int64)
        self.pods: Longs = np.empty(0, np.int64)

    def read(self, needs: Sequence[Need]) -> Longs:
        """The row of each need."""
        known = map(self.row_of.get, map(id, needs), repeat(NONE))
        row = np.fromiter(known, np.int64, len(needs))
        unread = np.flatnonzero(row == NONE).tolist()
        for at in unread:
            if id(needs[at]) not in self.row_of:
                self._add(needs[at])
            row[at] = self.row_of[id(needs[at])]
        if unread:
            self._append()
        return row

    def _add(self, need: Need) -> None:
        self.row_of[id(need)] = len(self.needs)
        self.needs.append(need)  # keeps its id from being used again
        profile = need.profile
        number = self._profile_numbers.setdefault(profile.fingerprint, len(self.profiles))
        if number == len(self.profiles):
            self.profiles.append(profile)
        priority = need.priority
        self._new.append((
            priority,
            priority < profile.priority,
            number,
            profile.interruption_bucket,
            profile.reclamation_bucket,
            isinstance(need.group, Additional),
            profile.same_key is not None,
            isinstance(need.group, FoldedGangs),
            HOSTNAME_LABEL in profile.anti_affinity,
            _is_contradictory(need),
            self._number_of_sizes,
            len(need.sizes),
        ))  # fmt: skip
        self._new_sizes.extend(need.sizes)
        self._number_of_sizes += len(need.sizes)

    def _append(self) -> None:
        needs = len(self.needs)
        self.rows = _with_room(self.rows, needs)
        new = self.rows[needs - len(self._new) : needs]
        for name, column in zip(_ROW.names or (), zip(*self._new, strict=True), strict=True):
            new[name] = column
        self._append_sizes(self._new_sizes)
        self._new, self._new_sizes = [], []

    def _append_sizes(self, sizes: Sequence[Size]) -> None:
        end = self._number_of_sizes
        first = end - len(sizes)
        self.pods = _with_room(self.pods, end)
        self.pods[first:end] = [size.pods for size in sizes]
        amounts = [each for size in sizes for each in size.amounts]
        for name in dict.fromkeys(name for name, _ in amounts):
            self.column_of.setdefault(name, len(self.column_of))
        more = len(self.column_of) - self.amounts.shape[1]
        if more:
            self.amounts = np.pad(self.amounts, ((0, 0), (0, more)))
        self.amounts = _with_room(self.amounts, end)
        numbers = np.array([len(size.amounts) for size in sizes], np.intp)
        row = np.repeat(np.arange(first, end), numbers)
        column = np.array([self.column_of[name] for name, _ in amounts], np.intp)
        self.amounts[row, column] = [amount for _, amount in amounts]


def _with_room(column: _Column, rows: int) -> _Column:
    """The column, or a longer one that begins with it and else is 0, with at least so many rows."""
    if rows <= len(column):
        return column
    longer = np.zeros((2 * rows, *column.shape[1:]), column.dtype)
    longer[: len(column)] = column
    return cast("_Column", longer)


class NeedColumns(Sequence[Need]):
    """N needs, also as columns; immutable."""

    _reader: _Reader
    _row: Longs

    def __init__(
        self,
        needs: Iterable[Need],
        last: NeedColumns | None = None,
        changed: Sequence[int] | None = None,
    ) -> None:
        """`last` are the columns of an earlier demand, from which needs that are still there are
        taken over. `changed` are the positions at which the needs are others, if those at all other
        positions are `last`'s.
        """
        self._needs = tuple(needs)
        reader = last._reader if last is not None else _Reader()
        if len(reader.needs) > _MAX_GARBAGE * len(self._needs) + 1000:
            reader, changed = _Reader(), None
        if last is None or changed is None:
            row = reader.read(self._needs)
        else:
            row = last._row.copy()
            row[changed] = reader.read([self._needs[at] for at in changed])
        self._reader, self._row = reader, row
        columns = reader.rows[row]
        #: what gangs among the needs fold into
        self.folded: FoldedNeeds = reader.folded
        #: distinct profiles, among them those of all needs
        self.profiles: Sequence[Profile] = reader.profiles
        #: names of the columns of `amounts`
        self.resources = tuple(reader.column_of)
        self.priority: Longs = columns["priority"].copy()
        self.capped: Flags = columns["capped"].copy()
        self.profile: Ints = columns["profile"].copy()
        self.interruption_bucket: Bytes = columns["interruption_bucket"].copy()
        self.reclamation_bucket: Bytes = columns["reclamation_bucket"].copy()
        self.additional: Flags = columns["additional"].copy()
        self.gang: Flags = columns["gang"].copy()
        self.folded_gangs: Flags = columns["folded_gangs"].copy()
        self.apart: Flags = columns["apart"].copy()
        self.contradictory: Flags = columns["contradictory"].copy()
        sizes = columns["sizes"]
        #: [N + 1] int64, delimits each need's sizes
        self.start: Longs = np.zeros(len(row) + 1, np.int64)
        np.cumsum(sizes, out=self.start[1:])
        #: [S] int32, the need of each size
        self.need: Ints = np.repeat(np.arange(len(row), dtype=np.int32), sizes)
        at = np.arange(self.start[-1]) + np.repeat(columns["first_size"] - self.start[:-1], sizes)
        #: [S, Q] int64, requests of one pod
        self.amounts: Longs = reader.amounts[at]
        #: [S] int64, number of pods
        self.pods: Longs = reader.pods[at]

    def have_valid_profiles(self, check: Callable[[str, Profile], None]) -> bool:
        """Whether `check` raises InvalidInput for none of the profiles; each is checked once."""
        reader = self._reader
        try:
            for profile in reader.profiles[reader.valid_profiles :]:
                check(profile.fingerprint, profile)
                reader.valid_profiles += 1
        except InvalidInput:
            return False
        return True

    def __len__(self) -> int:
        return len(self._needs)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._needs[index]

    def __iter__(self) -> Iterator[Need]:
        return iter(self._needs)


def need_columns_of(needs: Sequence[Need]) -> NeedColumns:
    """`needs` as columns; the same object if they are already."""
    return needs if isinstance(needs, NeedColumns) else NeedColumns(needs)


def _is_contradictory(need: Need) -> bool:
    """Whether all pods must share a domain that may not hold them all, whatever machines exist."""
    profile = need.profile
    if profile.same_key is None:
        return False
    # A gang that must share one host and was not folded fits on no machine.
    if profile.same_key == HOSTNAME_LABEL:
        return True
    # Domains are nested: two pods of one rack are in one zone as well. Only hosts are finer.
    repels = any(key != HOSTNAME_LABEL for key in profile.anti_affinity)
    return repels and sum(size.pods for size in need.sizes) > 1
