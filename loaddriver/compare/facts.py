"""A fact first: what two revisions do differently without much luck. Pure.

The same seeds on the virtual clock give the same story unless a decision changed; the engine's CPU
on the same synthetic fleets is measured in a minute, without control planes; and how much is
written for a pod hardly varies, so that one run of each side shows it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from itertools import islice
from statistics import median

import msgspec

from loaddriver.compare.comparison import Fact
from loaddriver.compare.measures import BYTES, WRITES, PairMeasures
from loaddriver.compare.sequential import percent_of

_SHOWN_LINES = 12
# Single runs of equal systems differ by 2 %.
_MOST_CHANGE_OF_TRAFFIC = math.log(1.05)


class EngineRow(msgspec.Struct, frozen=True):
    """One fleet of the engine's benchmark: milliseconds of CPU of a decision, and what it did."""

    name: str
    median: float
    orders: int
    short: int


def story_fact(base: Mapping[int, str | None], head: Mapping[int, str | None]) -> Fact:
    """Whether the stories of these seeds differ, with a diff of the first that does.

    A story of None could not be told.
    """
    seeds = sorted(base)
    name = "stories on the virtual clock"
    if any(text is None for side in (base, head) for text in side.values()):
        return _unknown(name, "a revision cannot replay these seeds")
    changed = [seed for seed in seeds if base[seed] != head[seed]]
    if not changed:
        text = f"{len(seeds)} seeds with faults play the same story, to the last action and moment"
        return Fact(name=name, changed=False, sentence=text, lines=[])
    first = changed[0]
    return Fact(
        name=name,
        changed=True,
        sentence=(
            f"{len(changed)} of {len(seeds)} seeds play another story ({_some(changed)}); seed "
            f"{first} differs first in:"
        ),
        lines=_diff(base[first] or "", head[first] or ""),
    )


def engine_facts(
    base: Sequence[Sequence[EngineRow]], head: Sequence[Sequence[EngineRow]]
) -> list[Fact]:
    """The engine's CPU by fleet, from alternating rounds, and whether it decided the same.

    A round that could not be measured is empty.
    """
    if not all([*base, *head]):
        return [_unknown("engine", "a revision cannot measure its engine")]
    names = [row.name for row in base[0]]
    rows = [{row.name: row for row in each} for each in (*base, *head)]
    shared = [name for name in names if all(name in each for each in rows)]
    return [_engine_fact(name, rows[: len(base)], rows[len(base) :]) for name in shared]


def traffic_facts(pair: PairMeasures) -> list[Fact]:
    """Writes and bytes of API servers for a pod, from one run of each side; none if unknown."""
    return [
        _traffic_fact(name, was, now)
        for name in (WRITES, BYTES)
        if (was := pair.base.described.get(name)) and (now := pair.head.described.get(name))
    ]


def _traffic_fact(name: str, was: float, now: float) -> Fact:
    change = math.log(now / was)
    shown = f"{was:.4g} and {now:.4g} ({percent_of(change):+.1f} %)"
    return Fact(
        name=name,
        changed=abs(change) > _MOST_CHANGE_OF_TRAFFIC,
        sentence=f"{shown} in the first run of each side",
        lines=[],
    )


def _engine_fact(
    name: str, base: Sequence[Mapping[str, EngineRow]], head: Sequence[Mapping[str, EngineRow]]
) -> Fact:
    was, now = (median(each[name].median for each in side) for side in (base, head))
    decided = [(each[name].orders, each[name].short) for each in (*base, *head)]
    changed = len(set(decided)) > 1
    lines = []
    if changed:
        lines = [f"-{_orders(base[0][name])}", f"+{_orders(head[0][name])}"]
    return Fact(
        name=f"engine, {name}",
        changed=changed,
        sentence=(
            f"{was:.3g} and {now:.3g} ms of CPU a decision ({100 * (now / was - 1):+.1f} %), "
            f"medians of {len(base)} alternating rounds; "
            f"{'other' if changed else 'the same'} orders"
        ),
        lines=lines,
    )


def _orders(row: EngineRow) -> str:
    return f"{row.orders} orders, {row.short} needs short at the end"


def _diff(base: str, head: str) -> list[str]:
    lines = difflib.unified_diff(base.splitlines(), head.splitlines(), lineterm="", n=1)
    return list(islice((line for line in lines if line[:3] not in ("---", "+++")), _SHOWN_LINES))


def _unknown(name: str, reason: str) -> Fact:
    return Fact(name=name, changed=None, sentence=f"not established: {reason}", lines=[])


def _some(seeds: Sequence[int]) -> str:
    shown = ", ".join(map(str, seeds[:5]))
    return f"{shown}, ..." if len(seeds) > 5 else shown
