"""The need that each machine of a snapshot serves or is reserved for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bigfleet.engine.snapshot import NONE, Fleet, Ints
from bigfleet.model.need import NeedKey


@dataclass(frozen=True)
class Wants:
    """`numbers` has for each row an index into `keys`, NONE where no need wants the machine."""

    numbers: Ints
    keys: Sequence[NeedKey]

    @cached_property
    def used(self) -> Sequence[int]:
        """The numbers of the needs that want a machine."""
        used: list[int] = np.unique(self.numbers[self.numbers != NONE]).tolist()
        return used

    def apply_to(self, fleet: Fleet, place: Mapping[NeedKey, int]) -> Fleet:
        """`fleet` with `last_claimed_by` set; `place` has the index of each need in the demand."""
        positions = np.full(len(self.keys) + 1, NONE, np.int32)  # the last entry is for NONE
        for number in self.used:
            positions[number] = place.get(self.keys[number], NONE)
        last_claimed_by: Ints = positions[self.numbers]
        return replace(fleet, last_claimed_by=last_claimed_by)
