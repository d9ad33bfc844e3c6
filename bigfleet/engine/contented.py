"""Needs that their own machines cover: most of them, most of the time, so they are found at once.

A need counts its own machines before any other. Where these cover it, its turn is over before it
looks at anything that another need could have: it takes the same machines as if it were alone,
unless somebody served earlier holds one of them. Gangs are left out, because a gang may be better
off in another domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np

from bigfleet.engine.desk import Desk
from bigfleet.engine.holding import wanted
from bigfleet.engine.snapshot import NONE, Ints, Rows
from bigfleet.engine.supply import Owned
from bigfleet.engine.wishes import Likeness

_NEEDS_AT_ONCE = 1000  # one that was robbed makes those after it be looked at again
_SIDES: tuple[Literal["left"], Literal["right"]] = "left", "right"


class _Asked(NamedTuple):
    """Needs that are alike, in ascending order, and how much of each resource each of them asks."""

    needs: list[int]
    amounts: list[list[int]]


class Contented:
    """Which needs are covered by their own machines, and by which of them."""

    def __init__(self, desk: Desk) -> None:
        self._supply = desk.supply
        self._needs = len(desk.demand.needs)
        self._counted = _all_counted(desk)
        covered = np.zeros(self._needs, np.bool_)
        covered[self._counted.needs] = True
        self._others = np.append(np.flatnonzero(~covered), self._needs)  # the last is the end

    def turns(self) -> Iterator[int]:
        """The needs that have to be served one by one, each when it is its turn: those before it
        that need no help count their machines first.
        """
        start = 0
        while start < self._needs:
            stop = self._next_turn(start)
            if stop < min(self._needs, start + _NEEDS_AT_ONCE):
                yield stop
                stop += 1
            start = stop

    def _next_turn(self, start: int) -> int:
        """Count for all needs from `start` to the first that has to be served, which is returned;
        or to the end of those that are looked at together.
        """
        other = int(self._others[np.searchsorted(self._others, start)])
        stop = min(other, start + _NEEDS_AT_ONCE)
        first, last = np.searchsorted(self._counted.needs, (start, stop))
        rows, needs = self._counted.rows[first:last], self._counted.needs[first:last]
        robbed = np.flatnonzero(self._supply.claimed_by[rows] != NONE)
        if len(robbed):
            stop = int(needs[robbed[0]])
            last = np.searchsorted(needs, stop)
            rows, needs = rows[:last], needs[:last]
        self._supply.claimed_by[rows] = needs
        return stop


def _all_counted(desk: Desk) -> Owned:
    """What each need would count if it were alone, for those that need no other machines."""
    own = desk.supply.own()
    alike = _alike(desk, np.unique(own.needs).tolist())
    parts = [_counted(like, asked, own, desk.fleet.flavour) for like, asked in alike.items()]
    rows = np.concatenate([own.rows[:0], *(part.rows for part in parts)])
    needs = np.concatenate([own.needs[:0], *(part.needs for part in parts)])
    order = np.argsort(needs, kind="stable")
    return Owned(rows[order], needs[order])


def _alike(desk: Desk, indices: Iterable[int]) -> dict[Likeness, _Asked]:
    """Of these needs those without a gang, by what they have in common."""
    alike: dict[Likeness, _Asked] = {}
    for index in indices:
        need = desk.demand.needs[index]
        resources, amounts = wanted(need)
        if resources and need.profile.same_key is None:
            asked = alike.setdefault(desk.wishes.like(need, resources), _Asked([], []))
            asked.needs.append(index)
            asked.amounts.append(amounts)
    return alike


def _counted(like: Likeness, asked: _Asked, own: Owned, flavour: Ints) -> Owned:
    """Which of their `own` machines the needs `asked` take, those that are covered by them.

    Machines are taken in order until nothing is missing. One that holds nothing of some resource
    may be passed over, so needs with such a machine are left out.
    """
    needs, want = np.array(asked.needs, np.intp), np.array(asked.amounts, np.int64)
    at, place = _of_each(own, needs)
    useful = like.usable[flavour[own.rows[at]]]
    rows, place = own.rows[at[useful]], place[useful]
    units = like.units[flavour[rows]]
    up_to = np.concatenate((np.zeros((1, want.shape[1]), np.int64), units.cumsum(axis=0)))
    first, last = (np.searchsorted(place, np.arange(len(needs)), side) for side in _SIDES)
    covered = np.logical_and.reduce(up_to[last] - up_to[first] >= want, axis=1)
    covered[place[np.logical_or.reduce(units == 0, axis=1)]] = False
    lacking = np.logical_or.reduce(up_to[:-1] - up_to[first[place]] < want[place], axis=1)
    taken = lacking & covered[place]
    return Owned(rows[taken], needs[place[taken]])


def _of_each(own: Owned, needs: Rows) -> tuple[Rows, Rows]:
    """Positions in `own` of the machines of all `needs`, each with its need's place."""
    first, last = (np.searchsorted(own.needs, needs, side) for side in _SIDES)
    counts = last - first
    positions = np.arange(counts.sum()) + np.repeat(last - counts.cumsum(), counts)
    return positions, np.repeat(np.arange(len(needs)), counts)
