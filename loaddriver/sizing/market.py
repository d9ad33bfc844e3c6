"""Prices and supply of a fleet over time: what a plan changes, at the times when it was played."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import msgspec

from loaddriver.plan.market import NO_CHANGES, Interruption, Kind, MarketPlan
from loaddriver.sizing.inventory import InventoryMachine


def kind_of(machine: InventoryMachine) -> Kind:
    """The kind of a machine."""
    return Kind(machine.instance_type, machine.zone, machine.capacity_type)


def prices_by_kind(machines: Iterable[InventoryMachine]) -> dict[Kind, float]:
    """What a machine of each kind costs by itself, in dollars per hour."""
    return {kind_of(machine): machine.price_per_hour for machine in machines}


@dataclass(frozen=True)
class PlayedMarket:
    """The changes of `plan`, whose soak began at `began_micros`; nothing changes by default."""

    plan: MarketPlan = NO_CHANGES
    began_micros: int = 0

    def at_micros(self, seconds: float) -> int:
        """The time `seconds` into the soak."""
        return self.began_micros + round(seconds * 1e6)

    @property
    def move_times(self) -> list[int]:
        """When prices moved, in microseconds, without repetition."""
        return sorted({self.at_micros(move.seconds) for move in self.plan.price_moves})

    def price(self, machine: InventoryMachine, at_micros: int) -> float:
        """What the machine cost at that time, in dollars per hour."""
        times, prices = self._histories.get(kind_of(machine), ((), ()))
        moved = bisect_right(times, at_micros)
        return prices[moved - 1] if moved else machine.price_per_hour

    def priced(self, machine: InventoryMachine, at_micros: int) -> InventoryMachine:
        """The machine at its price of that time."""
        price = self.price(machine, at_micros)
        if price == machine.price_per_hour:
            return machine
        return msgspec.structs.replace(machine, price_per_hour=price)

    def mean_price(self, machine: InventoryMachine, begin_micros: int, end_micros: int) -> float:
        """What the machine cost on average in a period, in dollars per hour."""
        if end_micros <= begin_micros:
            return self.price(machine, begin_micros)
        times = [at for at in self.move_times if begin_micros < at < end_micros]
        parts = pairwise([begin_micros, *times, end_micros])
        total = sum(self.price(machine, begin) * (end - begin) for begin, end in parts)
        return total / (end_micros - begin_micros)

    def interruption(self, kind: Kind, at_micros: int) -> Interruption | None:
        """The interruption of a kind that was in force, from its notice until it was back."""
        for each in self.plan.interruptions:
            begin, end = self.at_micros(each.seconds), self.at_micros(each.back_seconds)
            if each.kind == kind and begin <= at_micros < end:
                return each
        return None

    def provider_lines(self) -> Iterator[dict[str, Any]]:
        """The lines of the provider's market file, with Unix times."""
        began = self.began_micros / 1e6
        for move in self.plan.price_moves:
            yield {
                "type": "price",
                "at": began + move.seconds,
                **move.kind._asdict(),
                "price_per_hour": move.dollars_per_hour,
            }
        for each in self.plan.interruptions:
            yield {
                "type": "interruption",
                "at": began + each.seconds,
                "instance_type": each.kind.instance_type,
                "zone": each.kind.zone,
                "notice_seconds": each.notice_seconds,
                "down_seconds": each.down_seconds,
            }

    @cached_property
    def _histories(self) -> Mapping[Kind, tuple[Sequence[int], Sequence[float]]]:
        """By kind, when its price moved and what it was from then on."""
        found: dict[Kind, tuple[list[int], list[float]]] = {}
        for move in self.plan.price_moves:
            times, prices = found.setdefault(move.kind, ([], []))
            times.append(self.at_micros(move.seconds))
            prices.append(move.dollars_per_hour)
        return found


UNCHANGED = PlayedMarket()
