"""Quotas: how many elastic machines this shard may still purchase, by provider and region. Pure.

A decision sees speculative machines of a region as long as the quota is not exhausted; of the
purchases that it wants, the most urgent ones within the quota are ordered and the others dropped.
The next decision sees those orders under way. Once the quota is exhausted it sees no speculative
machines, and the needs are reported as short.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bigfleet.engine.columns import columns_of
from bigfleet.engine.decision import Action, ActionType
from bigfleet.engine.snapshot import Flags, Flavour, Fleet, Ints
from bigfleet.model.domain import region_of
from bigfleet.model.machine import MachineState
from bigfleet.ports.ownership import QuotaKey

PROVISION = ActionType.PROVISION


class QuotaUse(NamedTuple):
    """A slice, and how many machines count against it."""

    key: QuotaKey
    machines: int
    held: int


def quota_key(flavour: Flavour, names: Mapping[str, str]) -> QuotaKey:
    """The provider, by its own name among `names`, and the region of such machines."""
    return QuotaKey(names.get(flavour.provider, ""), region_of(flavour.labels))


class Quotas:
    """What is left of the `slices` for the machines in one fleet. `names` are the providers' own
    names.
    """

    def __init__(
        self, fleet: Fleet, names: Mapping[str, str], slices: Mapping[QuotaKey, int]
    ) -> None:
        self._fleet, self._names = fleet, names
        known = {*names.values()}
        #: those of providers that are known by now
        self.slices = {key: most for key, most in slices.items() if key.provider in known}
        number: dict[QuotaKey | None, int] = {key: n for n, key in enumerate(self.slices)}

        def numbers() -> Ints:
            limited = (number.get(self.key_of(flavour), -1) for flavour in fleet.flavours)
            return np.array([*limited, -1], np.int32)

        # Of hundreds of thousands of flavours only the slices change, and rarely.
        its = (tuple(names.items()), tuple(self.slices))
        of_flavour = columns_of(fleet.flavours).remember_last(("quotas", its), numbers)
        self._slice: Ints = of_flavour[fleet.flavour]
        bought = (self._slice >= 0) & (fleet.state != MachineState.SPECULATIVE)
        held = np.bincount(self._slice[bought], minlength=len(number))
        self._held: list[int] = held.tolist()
        self._left = [
            max(0, most - count)
            for most, count in zip(self.slices.values(), self._held, strict=True)
        ]

    def key_of(self, flavour: Flavour) -> QuotaKey | None:
        """The quota that purchases of such machines count against; None if there is none."""
        key = quota_key(flavour, self._names)
        return key if flavour.capacity_type.elastic and key in self.slices else None

    def uses(self, issued: Iterable[Action]) -> Iterator[QuotaUse]:
        """What counts against each slice once the actions that were `issued` are carried out."""
        rows = [action.row for action in issued if action.type is PROVISION]
        bought = Counter(self._slice[rows].tolist())
        for index, (key, most) in enumerate(self.slices.items()):
            yield QuotaUse(key, most, self._held[index] + bought[index])

    def is_exhausted(self, flavour: Flavour) -> bool:
        """Whether none of these may be purchased."""
        key = self.key_of(flavour)
        return key is not None and self._left[[*self.slices].index(key)] == 0

    def exhausted(self) -> Flags:
        """The speculative machines whose quota is exhausted."""
        none_left = np.array([*(left == 0 for left in self._left), False], np.bool_)
        found: Flags = none_left[self._slice] & (self._fleet.state == MachineState.SPECULATIVE)
        return found

    def within(self, actions: Sequence[Action]) -> Iterator[Action]:
        """The actions within quota, in their order."""
        left = list(self._left)
        for action in actions:
            number = int(self._slice[action.row])
            if action.type is PROVISION and number >= 0:
                if left[number] == 0:
                    continue
                left[number] -= 1
            yield action
