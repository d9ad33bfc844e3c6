"""Quarantine: decides without the needs on which the engine fails.

Every accepted need can be decided on; if a defect breaks that, only the need that triggers it may
be affected. The first failing need is found by bisection, and left out until its cluster changes
it. Meanwhile nothing is reclaimed from that cluster, since it is unknown which machines the need
uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

from bigfleet.engine.snapshot import Demand
from bigfleet.model.need import Need, NeedKey
from bigfleet.services.shard.records.wants import KeysOf

_Result = TypeVar("_Result")

# A cluster with more failing needs than this is left out entirely, because each search takes many
# decisions.
_MAX_PER_CLUSTER = 3

QUARANTINE_MESSAGE = "deciding on this need failed, which is a defect of BigFleet: {error}"


@dataclass(frozen=True)
class QuarantinedNeed:
    """A need that is left out until it changes, and the error that it raised."""

    need: Need
    error: str


Quarantine = Mapping[NeedKey, QuarantinedNeed]


@dataclass(frozen=True)
class QuarantineResult(Generic[_Result]):
    """The result without the needs in `quarantine`; `found` are the newly failing ones."""

    decided: _Result
    quarantine: Quarantine
    found: Collection[NeedKey]


def decide_without_failing_needs(
    clusters: Sequence[str],
    asked: Demand,
    known: Quarantine,
    decide: Callable[[Demand], _Result],
) -> QuarantineResult[_Result]:
    """Run `decide` on all needs of `asked` on which it does not fail.

    `known` are the needs left out so far; one that has changed since is retried. Raises the error
    of `decide` if it fails without needs, too.
    """
    keys = KeysOf(asked, clusters)
    excluded = _known_failing(keys, asked, known) if known else {}
    found: list[NeedKey] = []
    while True:
        try:
            result = decide(without(asked, excluded))
        except Exception as error:  # noqa: BLE001  all other needs must be served
            index_of_failing = _first_failing(asked, excluded, decide)
            found.append(keys[index_of_failing])
            excluded[index_of_failing] = _error_text(error)
            _exclude_whole_clusters(clusters, asked, found, excluded)
        else:
            kept = {
                keys[index]: QuarantinedNeed(asked.needs[index], why)
                for index, why in excluded.items()
            }
            return QuarantineResult(result, kept, found)


def _known_failing(keys: Sequence[NeedKey], asked: Demand, known: Quarantine) -> dict[int, str]:
    """The needs that failed before and have not changed since, with their errors."""
    return {
        index: known[key].error
        for index, key in enumerate(keys)
        if key in known and known[key].need == asked.needs[index]
    }


def without(asked: Demand, excluded: Collection[int]) -> Demand:
    """`asked` without the needs at the indices `excluded`, whose clusters keep their machines."""
    if not excluded:
        return asked
    kept = np.ones(len(asked.needs), np.bool_)
    kept[list(excluded)] = False
    affected = frozenset(asked.cluster[~kept].tolist())
    return replace(
        asked,
        needs=[need for need, stays in zip(asked.needs, kept.tolist(), strict=True) if stays],
        cluster=asked.cluster[kept],
        number=None if asked.number is None else asked.number[kept],
        reported=asked.reported - affected,
    )


def _first_failing(
    asked: Demand, excluded: Collection[int], decide: Callable[[Demand], object]
) -> int:
    """The last need of the shortest prefix of the demand that fails, found by bisection."""
    number = len(asked.needs)

    def fails(length: int) -> bool:
        try:
            decide(without(asked, {*excluded, *range(length, number)}))
        except Exception:  # noqa: BLE001  the failure being searched for
            return True
        return False

    if fails(0):
        decide(without(asked, range(number)))  # raises: it fails without any need
    sound, failing = 0, number
    while failing - sound > 1:
        middle = (sound + failing) // 2
        if fails(middle):
            failing = middle
        else:
            sound = middle
    return failing - 1


def _exclude_whole_clusters(
    clusters: Sequence[str], asked: Demand, found: list[NeedKey], excluded: dict[int, str]
) -> None:
    worst = {c for c, n in Counter(key.cluster for key in found).items() if n > _MAX_PER_CLUSTER}
    for index, cluster in enumerate(asked.cluster.tolist()):
        if clusters[cluster] in worst:
            why = f"too many needs of cluster {clusters[cluster]} failed"
            excluded.setdefault(index, why)


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]
