"""Quotas: how many elastic machines this shard may still purchase, by provider and region. Pure.

A decision sees speculative machines of a region as long as the quota is not exhausted; of the
purchases that it wants, the most urgent ones within the quota are ordered and the others dropped.
The next decision sees those orders under way. Once the quota is exhausted it sees no speculative
machines, and the needs are reported as short.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

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


class Quotas:
    """What is left of the `slices` for the machines of `provider` in one fleet."""

    def __init__(self, fleet: Fleet, provider: str, slices: Mapping[QuotaKey, int]) -> None:
        self._fleet, self._provider, self._slices = fleet, provider, slices
        regions = {key.region: most for key, most in slices.items() if key.provider == provider}
        self._names = list(regions)
        number = {region: index for index, region in enumerate(self._names)}
        limited = [
            number.get(region_of(f.labels), -1) if f.capacity_type.elastic else -1
            for f in fleet.flavours
        ]
        self._region: Ints = np.array([*limited, -1], np.int32)[fleet.flavour]
        bought = (self._region >= 0) & (fleet.state != MachineState.SPECULATIVE)
        held = np.bincount(self._region[bought], minlength=len(regions))
        self._held: list[int] = held.tolist()
        self._left = [
            max(0, most - count) for most, count in zip(regions.values(), self._held, strict=True)
        ]

    def uses(self, actions: Sequence[Action]) -> Iterator[QuotaUse]:
        """What counts against each slice once `actions` are carried out as far as they are within
        quota.
        """
        rows = [action.row for action in self.within(actions) if action.type is PROVISION]
        bought = Counter(self._region[rows].tolist())
        for index, region in enumerate(self._names):
            key = QuotaKey(self._provider, region)
            yield QuotaUse(key, self._slices[key], self._held[index] + bought[index])

    def is_exhausted(self, flavour: Flavour) -> bool:
        """Whether none of these may be purchased."""
        region = region_of(flavour.labels)
        limited = flavour.capacity_type.elastic and region in self._names
        return limited and self._left[self._names.index(region)] == 0

    def exhausted(self) -> Flags:
        """The speculative machines of regions with an exhausted quota."""
        none_left = np.array([*(left == 0 for left in self._left), False], np.bool_)
        found: Flags = none_left[self._region] & (self._fleet.state == MachineState.SPECULATIVE)
        return found

    def within(self, actions: Sequence[Action]) -> Iterator[Action]:
        """The actions within quota, in their order."""
        left = list(self._left)
        for action in actions:
            region = int(self._region[action.row])
            if action.type is PROVISION and region >= 0:
                if left[region] == 0:
                    continue
                left[region] -= 1
            yield action
