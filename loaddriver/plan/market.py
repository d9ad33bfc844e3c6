"""Plans prices that move and kinds of spot machines that are interrupted, within the soak.

Pure: the same settings, seed and prices give the same changes. Each kind's prices have a random
stream of their own, so that another kind in the fleet changes nothing of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bigfleet.model.labels import capacity_type_label
from loaddriver.errors import ProfileError
from loaddriver.plan.workloads import random_stream
from loaddriver.profile.fleet import KindInterruptions, PriceMoves
from loaddriver.profile.settings import ProfileSettings

# The cents of a cent to which catalogs have their prices.
_DECIMALS = 4
# As the inventory names what a profile does.
_CAPACITY_TYPES = {"onDemand": "ON_DEMAND", "spot": "SPOT"}


class Kind(NamedTuple):
    """What has one price, and is interrupted together; named as in the provider's inventory."""

    instance_type: str
    zone: str
    capacity_type: str

    def __str__(self) -> str:
        words = capacity_type_label(self.capacity_type)
        return f"{self.instance_type} in {self.zone}, {words}"


@dataclass(frozen=True)
class PriceMove:
    """From `seconds` of the soak on, a machine of the kind costs `dollars_per_hour`."""

    seconds: float
    kind: Kind
    dollars_per_hour: float


@dataclass(frozen=True)
class Interruption:
    """At `seconds` of the soak, machines of the kind are given notice. They are gone
    `notice_seconds` later, and for `down_seconds` after that there are none of the kind.
    """

    seconds: float
    kind: Kind
    notice_seconds: float
    down_seconds: float

    @property
    def gone_seconds(self) -> float:
        """When its machines are gone, in seconds into the soak."""
        return self.seconds + self.notice_seconds

    @property
    def back_seconds(self) -> float:
        """When there are machines of the kind again, in seconds into the soak."""
        return self.gone_seconds + self.down_seconds


@dataclass(frozen=True)
class MarketPlan:
    """All changes of prices and supply, in order of time."""

    price_moves: tuple[PriceMove, ...] = ()
    interruptions: tuple[Interruption, ...] = ()


NO_CHANGES = MarketPlan()


def make_market_plan(settings: ProfileSettings, prices: Mapping[Kind, float]) -> MarketPlan:
    """The changes that a profile declares; `prices` are those of the fleet, by kind.

    Raises ProfileError if the fleet has no machines that they could be of.
    """
    seed, moves, cuts = settings.seed, settings.fleet.prices, settings.fleet.interruptions
    return MarketPlan(
        () if moves is None else tuple(_price_moves(seed, moves, prices)),
        () if cuts is None else tuple(_interruptions(seed, cuts, prices)),
    )


def _price_moves(seed: int, moves: PriceMoves, prices: Mapping[Kind, float]) -> Iterator[PriceMove]:
    named = {_CAPACITY_TYPES[name] for name in moves.capacity_types}
    moving = {kind: price for kind, price in prices.items() if kind.capacity_type in named}
    if not moving:
        words = " or ".join(moves.capacity_types)
        raise ProfileError([f"fleet.prices.capacityTypes: the fleet has no {words} machines"])
    streams = {kind: random_stream(seed, f"prices/{'/'.join(kind)}") for kind in sorted(moving)}
    ends = math.log(moves.lowest_factor), math.log(moves.highest_factor)
    for seconds in moves.times_seconds:
        for kind, random in streams.items():
            factor = math.exp(random.uniform(*ends))
            yield PriceMove(seconds, kind, round(moving[kind] * factor, _DECIMALS))


def _interruptions(
    seed: int, cuts: KindInterruptions, kinds: Iterable[Kind]
) -> Iterator[Interruption]:
    spot = sorted(kind for kind in kinds if kind.capacity_type == "SPOT")
    if len(spot) <= cuts.kinds_at_once:
        raise ProfileError(
            [
                f"fleet.interruptions: up to {cuts.kinds_at_once} kinds of spot machines are "
                f"interrupted at once, and the fleet has {len(spot)}; it needs more kinds, or "
                "everySeconds must be longer"
            ]
        )
    random = random_stream(seed, "interruptions")
    waiting: list[Kind] = []
    back_seconds: dict[Kind, float] = {}
    for seconds in cuts.times_seconds:
        there = [kind for kind in waiting if back_seconds.get(kind, 0.0) <= seconds]
        if not there:
            waiting += random.sample(spot, len(spot))
            there = [kind for kind in waiting if back_seconds.get(kind, 0.0) <= seconds]
        waiting.remove(there[0])
        found = Interruption(seconds, there[0], cuts.notice_seconds, cuts.down_seconds)
        back_seconds[found.kind] = found.back_seconds
        yield found
