"""The need that each machine of a snapshot serves or is reserved for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import overload

import numpy as np

from bigfleet.engine.snapshot import NONE, Demand, Flags, Fleet, Ints
from bigfleet.model.need import NeedKey


class KeysOf(Sequence[NeedKey]):
    """The keys of a demand's needs; each is made when it is asked for."""

    def __init__(self, demand: Demand, clusters: Sequence[str]) -> None:
        """`clusters` are the names of the demand's."""
        self._demand, self._clusters = demand, clusters

    def __len__(self) -> int:
        return len(self._demand.needs)

    @overload
    def __getitem__(self, index: int) -> NeedKey: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[NeedKey]: ...
    def __getitem__(self, index: int | slice) -> NeedKey | Sequence[NeedKey]:
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        demand = self._demand
        return NeedKey(self._clusters[int(demand.cluster[index])], *demand.needs[index].key)


@dataclass(frozen=True)
class Wants:
    """`numbers` has for each row an index into `keys`, NONE where no need wants the machine."""

    numbers: Ints
    keys: Sequence[NeedKey]

    @cached_property
    def used(self) -> Ints:
        """The numbers of the needs that want a machine, in ascending order."""
        # Faster than to sort them.
        flags = np.zeros(len(self.keys) + 1, np.bool_)
        flags[self.numbers] = True
        return np.flatnonzero(flags[:-1]).astype(np.int32)

    def of_cluster(self, cluster: str) -> Flags:
        """Which rows a need of `cluster` wants."""
        its = [number for number in self.used.tolist() if self.keys[number].cluster == cluster]
        return np.isin(self.numbers, its)

    def compact(self) -> Wants:
        """The same with no other keys than those of needs that want a machine."""
        place = np.searchsorted(self.used, self.numbers).astype(np.int32)
        numbers = np.where(self.numbers == NONE, np.int32(NONE), place)
        return Wants(numbers, [self.keys[number] for number in self.used.tolist()])

    def numbered(self, demand: Demand, clusters: Sequence[str]) -> Demand:
        """`demand` with the number of each need that wants a machine; the same if it has numbers
        already, which are then those of `keys`. `clusters` are the names of the demand's.
        """
        if demand.number is not None:
            return demand
        number_of = {self.keys[number]: number for number in self.used.tolist()}
        found = [number_of.get(key, NONE) for key in KeysOf(demand, clusters)]
        return replace(demand, number=np.array(found, np.int32))

    def have_machines(self, demand: Demand) -> Flags:
        """Which of the needs [N] of the numbered `demand` want a machine."""
        assert demand.number is not None
        return np.isin(demand.number, self.used)

    def apply_to(self, fleet: Fleet, demand: Demand) -> Fleet:
        """`fleet` with `last_claimed_by` set, an index in the numbered `demand`. Its needs without
        a number are found by their keys.
        """
        assert demand.number is not None
        has_number = demand.number != NONE
        most = max(len(self.keys), int(demand.number.max(initial=NONE)) + 1)
        positions = np.full(most + 1, NONE, np.int32)  # the last entry is for NONE
        positions[demand.number[has_number]] = np.flatnonzero(has_number)
        keys = KeysOf(demand, fleet.clusters)
        place = {keys[index]: index for index in np.flatnonzero(~has_number).tolist()}
        for number in self.used[positions[self.used] == NONE].tolist():
            positions[number] = place.get(self.keys[number], NONE)
        last_claimed_by: Ints = positions[self.numbers]
        return replace(fleet, last_claimed_by=last_claimed_by)
