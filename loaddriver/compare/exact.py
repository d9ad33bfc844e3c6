"""What is counted and tested exactly: events of valid runs, and runs that are void. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loaddriver.compare.comparison import EventResult, Verdict, Voids
from loaddriver.compare.measures import PairMeasures
from loaddriver.compare.sequential import (
    SUSPICIOUS,
    WORDS,
    Code,
    Floats,
    Spending,
    event_codes,
    runs_with_more,
)
from loaddriver.distributions import binomial_tail, fisher_tail

VOID_LIMIT = 8
"""The voids of both sides that end a session: the fewest of which eight of one side prove it."""


@dataclass(frozen=True)
class Void:
    """A run without a valid measurement, by side ("base" or "head"), and the reason."""

    side: str
    reason: str


@dataclass(frozen=True)
class Runs:
    """How many runs each side has, valid or void."""

    base: int
    head: int


def event_result(key: str, name: str, pairs: Sequence[PairMeasures], plan: Spending) -> EventResult:
    """What was counted of one event in these pairs."""
    base = [pair.base.events.get(key, 0) for pair in pairs]
    head = [pair.head.events.get(key, 0) for pair in pairs]
    verdict: Verdict = "not measured"
    tail = 1.0
    if pairs:
        columns = _column(head), _column(base)
        verdict = WORDS[Code(event_codes(*columns, plan)[0])]
        more_of_head, more_of_base = (int(runs[0]) for runs in runs_with_more(*columns))
        tail = fisher_tail(more_of_head, more_of_base, len(pairs), len(pairs))
    return EventResult(
        key=key,
        name=name,
        verdict=verdict,
        base_count=sum(base),
        head_count=sum(head),
        base_runs=sum(count > 0 for count in base),
        head_runs=sum(count > 0 for count in head),
        tail=tail,
    )


def _column(counts: Sequence[int]) -> Floats:
    return np.array(counts, dtype=np.float64)[:, None]


def void_result(voids: Sequence[Void], runs: Runs | None = None) -> Voids:
    """What voids say, of so many runs of each side; None in a session, which plays both alike."""
    head = sum(void.side == "head" for void in voids)
    base = len(voids) - head
    if runs is None:
        tail = binomial_tail(head, len(voids))
    else:
        tail = fisher_tail(head, base, runs.head, runs.base)
    return Voids(
        base=base,
        head=head,
        limit=VOID_LIMIT,
        tail=tail,
        reasons=[f"{void.side}: {void.reason}" for void in voids],
    )


def too_many(voids: Voids) -> bool:
    """Whether the voids end a session."""
    return voids.base + voids.head >= voids.limit


def suspicious(voids: Voids) -> bool:
    """Whether HEAD seems to void its runs more often than BASE, which is not proven yet."""
    return voids.tail <= SUSPICIOUS
