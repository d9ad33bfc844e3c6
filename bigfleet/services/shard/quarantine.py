"""Decides without the needs that cannot be decided about.

What was accepted can be decided; should a defect of ours break that promise, only whoever triggers
it may notice. The first need at which a decision fails is looked for, and left out until its
cluster reports it otherwise. Meanwhile nothing is taken away from that cluster, since what its need
counts on is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from bigfleet.engine.snapshot import Demand
from bigfleet.model.need import Need, NeedKey

_Result = TypeVar("_Result")

# A cluster with more of them than this is left out as a whole: each is looked for with many
# decisions.
_MOST_OF_A_CLUSTER = 3

WHY_LEFT_OUT = "no decision can be made about it, which is a defect of BigFleet: {error}"


@dataclass(frozen=True)
class LeftOut:
    """A need that is left out for as long as it stays as it is, and the error that it raised."""

    need: Need
    error: str


Quarantine = Mapping[NeedKey, LeftOut]


@dataclass(frozen=True)
class Outcome(Generic[_Result]):
    """What came of the demand but for the needs in `quarantine`, and those `found` just now."""

    result: _Result
    quarantine: Quarantine
    found: Collection[NeedKey]


def decide_without_culprits(
    clusters: Sequence[str],
    asked: Demand,
    known: Quarantine,
    decide: Callable[[Demand], _Result],
) -> Outcome[_Result]:
    """What `decide` makes of all of `asked` that it can decide about.

    `known` are the needs left out so far; one that has changed since is tried again. Raises what
    `decide` raises if no need is to blame.
    """
    barred = _known_culprits(clusters, asked, known) if known else {}
    found: list[NeedKey] = []
    while True:
        try:
            result = decide(without(asked, barred))
        except Exception as error:  # noqa: BLE001  whatever it is, all others must be served
            culprit = _culprit(asked, barred, decide)
            found.append(_key(clusters, asked, culprit))
            barred[culprit] = _told(error)
            _bar_whole_clusters(clusters, asked, found, barred)
        else:
            kept = {
                _key(clusters, asked, index): LeftOut(asked.needs[index], why)
                for index, why in barred.items()
            }
            return Outcome(result, kept, found)


def _key(clusters: Sequence[str], asked: Demand, index: int) -> NeedKey:
    return NeedKey(clusters[int(asked.cluster[index])], *asked.needs[index].key)


def _known_culprits(clusters: Sequence[str], asked: Demand, known: Quarantine) -> dict[int, str]:
    """The needs that failed before and have not changed since, with their errors."""
    keys = ((index, _key(clusters, asked, index)) for index in range(len(asked.needs)))
    return {
        index: known[key].error
        for index, key in keys
        if key in known and known[key].need == asked.needs[index]
    }


def without(asked: Demand, barred: Collection[int]) -> Demand:
    """`asked` but for the needs at the indices `barred`, whose clusters keep what they have."""
    if not barred:
        return asked
    kept = np.ones(len(asked.needs), np.bool_)
    kept[list(barred)] = False
    affected = frozenset(asked.cluster[~kept].tolist())
    return replace(
        asked,
        needs=tuple(need for need, stays in zip(asked.needs, kept.tolist(), strict=True) if stays),
        cluster=asked.cluster[kept],
        reported=asked.reported - affected,
    )


def _culprit(asked: Demand, barred: Collection[int], decide: Callable[[Demand], object]) -> int:
    """The last need of some beginning of the demand that fails where the one before does not."""
    number = len(asked.needs)

    def fails(length: int) -> bool:
        try:
            decide(without(asked, {*barred, *range(length, number)}))
        except Exception:  # noqa: BLE001  this is what is being looked for
            return True
        return False

    if fails(0):
        decide(without(asked, range(number)))  # raises: no need is to blame
    sound, failing = 0, number
    while failing - sound > 1:
        middle = (sound + failing) // 2
        if fails(middle):
            failing = middle
        else:
            sound = middle
    return failing - 1


def _bar_whole_clusters(
    clusters: Sequence[str], asked: Demand, found: list[NeedKey], barred: dict[int, str]
) -> None:
    worst = {c for c, n in Counter(key.cluster for key in found).items() if n > _MOST_OF_A_CLUSTER}
    for index, cluster in enumerate(asked.cluster.tolist()):
        if clusters[cluster] in worst:
            why = f"other needs of cluster {clusters[cluster]} cannot be decided"
            barred.setdefault(index, why)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]
