"""How far what is held follows prices that move: dollars over time, against the least possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec

from loaddriver.judge.active_pods import pods_by_cluster
from loaddriver.judge.cost import HeldSpan, dollars_per_hour, offerings_at, paid_spans, ratio
from loaddriver.judge.facts import FleetFacts, RunFacts
from loaddriver.record.journal import Journal
from loaddriver.record.recorder import Observations
from loaddriver.record.rows import PodRow
from loaddriver.sizing.fit import PodRequirements
from loaddriver.sizing.lower_bound import least_dollars_per_hour

# Pods come and go for longer than this.
_SAMPLE_MICROS = 5 * 1_000_000


class PricePeriod(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The time from one move of the prices to the next; the ratio is null if the least is 0."""

    begins_at_seconds: float
    seconds: float
    dollars_per_hour: float
    least_dollars_per_hour: float
    dollars_ratio: float | None


class PriceFollowing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Dollars an hour from the first move of the prices to the end, on average.

    `dollars_per_hour` is what all machines paid for cost, each at its price of the moment. The
    least is a lower bound for the pods of each moment, over all machines of the fleet at their
    prices of that moment, as if machines could be exchanged at once and for nothing. `periods` are
    `move1`, `move2` and so on.
    """

    moves: int
    dollars_per_hour: float
    least_dollars_per_hour: float
    dollars_ratio: float | None
    periods: dict[str, PricePeriod]


def price_section(
    facts: RunFacts,
    observed: Sequence[Observations],
    rows: Sequence[PodRow],
    journal: Journal | None,
) -> PriceFollowing | None:
    """The section; None if no price has moved, or without the shards' journals."""
    fleet = facts.fleet
    if fleet is None or not fleet.market.move_times or journal is None or not journal.stories:
        return None
    end = max((each.ended_micros for each in observed), default=facts.ended_micros)
    moves = [at for at in fleet.market.move_times if at < end]
    if not moves:
        return None
    paid = paid_spans(journal, fleet, facts.started_micros)
    least = _least(fleet, rows)
    periods = {
        f"move{number}": _period(fleet, paid, least, (begin, until), facts)
        for number, (begin, until) in enumerate(zip(moves, [*moves[1:], end], strict=True), 1)
    }
    seconds = sum(each.seconds for each in periods.values())
    dollars = sum(each.dollars_per_hour * each.seconds for each in periods.values()) / seconds
    bound = sum(each.least_dollars_per_hour * each.seconds for each in periods.values()) / seconds
    return PriceFollowing(
        moves=len(moves),
        dollars_per_hour=round(dollars, 4),
        least_dollars_per_hour=round(bound, 4),
        dollars_ratio=ratio(dollars, bound),
        periods=periods,
    )


def _period(
    fleet: FleetFacts,
    paid: Sequence[HeldSpan],
    least: Callable[[int], float],
    period: tuple[int, int],
    facts: RunFacts,
) -> PricePeriod:
    begin, end = period
    dollars = dollars_per_hour(paid, fleet, begin, end) or 0.0
    samples = [least(at) for at in _moments(begin, end)]
    bound = sum(samples) / len(samples)
    began = facts.soak_started_micros or facts.started_micros
    return PricePeriod(
        begins_at_seconds=round((begin - began) / 1e6, 3),
        seconds=round((end - begin) / 1e6, 3),
        dollars_per_hour=dollars,
        least_dollars_per_hour=round(bound, 4),
        dollars_ratio=ratio(dollars, bound),
    )


def _moments(begin_micros: int, end_micros: int) -> Iterator[int]:
    """The middles of equal parts of a period, none longer than a sample."""
    number = max(1, -(-(end_micros - begin_micros) // _SAMPLE_MICROS))
    for n in range(number):
        yield begin_micros + (end_micros - begin_micros) * (2 * n + 1) // (2 * number)


def _least(fleet: FleetFacts, rows: Sequence[PodRow]) -> Callable[[int], float]:
    """The lower bound at a time; found once for equal pods at equal prices."""
    known: dict[object, float] = {}

    def least(at_micros: int) -> float:
        pods: Counter[PodRequirements] = Counter()
        for own in pods_by_cluster(rows, at_micros, fleet).values():
            pods.update(own)
        moved = sum(at <= at_micros for at in fleet.market.move_times)
        key = moved, frozenset(pods.items())
        if key not in known:
            known[key] = least_dollars_per_hour(pods, offerings_at(fleet, pods, at_micros))
        return known[key]

    return least
