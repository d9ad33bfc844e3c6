"""Interning of values that many machines or needs share, each identified by a small number."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from bigfleet.engine.snapshot import NONE, Ints
from bigfleet.model.need import NeedKey

_Value = TypeVar("_Value", bound=Hashable)

# Needs that are gone keep their numbers until there are so many times as many as of the others, and
# many: to number those in force anew takes long.
_MAX_GARBAGE = 2
_FEW_NEEDS = 1000


class Interned(Generic[_Value]):
    """Values numbered from 0 in the order in which they were first seen. `renumbered` is how often
    their numbers have changed.
    """

    def __init__(self) -> None:
        self.renumbered = 0
        self.values: list[_Value] = []
        self._numbers: dict[_Value, int] = {}

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, number: int) -> _Value:
        return self.values[number]

    def number(self, value: _Value) -> int:
        """The number of `value`; a new value gets the next one."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number

    def keep(self, used: Ints) -> Ints:
        """Drop values that do not occur in `used`; return `used` in the new numbering.

        NONE stays NONE. Without this, values such as past prices and gangs would accumulate.
        """
        alive = self.alive(used)
        if len(alive) == len(self.values):
            return used
        new = np.full(len(self.values) + 1, NONE, np.int32)  # the last entry is for NONE
        new[alive] = np.arange(len(alive), dtype=np.int32)
        self.values = [self.values[n] for n in alive]
        self._numbers = {value: n for n, value in enumerate(self.values)}
        self.renumbered += 1
        result: Ints = new[used]
        return result

    @staticmethod
    def alive(used: Ints) -> Sequence[int]:
        """The numbers that occur in `used`, in ascending order."""
        numbers: list[int] = np.unique(used[used != NONE]).tolist()
        return numbers


@dataclass(frozen=True)
class Numbers:
    """The numbers of clusters and of needs, shared by the needs table and the inventory."""

    clusters: Interned[str] = field(default_factory=Interned)
    needs: Interned[NeedKey] = field(default_factory=Interned)
    #: the numbers of needs that must stay whether or not a machine has them
    needs_in_force: list[Callable[[], Ints]] = field(default_factory=list)

    def keep_needs(self, used: Ints) -> Ints:
        """`used` in a new numbering, without the needs that are neither among `used` nor in force;
        in the old one for as long as these are not most of all.
        """
        in_force = [numbers() for numbers in self.needs_in_force]
        kept = np.concatenate([used, *in_force])
        if len(self.needs) <= _MAX_GARBAGE * len(self.needs.alive(kept)) + _FEW_NEEDS:
            return used
        return self.needs.keep(kept)[: len(used)]
