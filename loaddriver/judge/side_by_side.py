"""Compares the gangs of two runs of one plan, with and without anchors."""

from __future__ import annotations

import msgspec

from loaddriver.errors import LoaddriverError
from loaddriver.judge.schema import GangSide, Summary


def side_by_side(first: Summary, second: Summary) -> tuple[Summary, Summary]:
    """Both summaries, each with both sides in the given order.

    Raises LoaddriverError unless both ran the same plan.
    """
    plans = [(s.run.profile, s.run.seed, s.pods.planned) for s in (first, second)]
    if plans[0] != plans[1]:
        raise LoaddriverError(
            f"{first.run.id} and {second.run.id} did not run the same plan, so they cannot stand "
            "side by side: profile, seed and planned pods are "
            f"{plans[0]} and {plans[1]}"
        )
    sides = [_side(first), _side(second)]
    return (
        msgspec.structs.replace(first, side_by_side=sides),
        msgspec.structs.replace(second, side_by_side=sides),
    )


def _side(summary: Summary) -> GangSide:
    gangs = summary.gangs
    return GangSide(
        id=summary.run.id,
        anchors=summary.run.anchors,
        valid=summary.verdict not in ("error", "invalid"),
        gangs=gangs.count,
        stuck=gangs.count - gangs.complete,
        anchored=gangs.anchored,
        scheduler_first=gangs.scheduler_first,
        unplaced=gangs.unplaced,
        complete_share=gangs.complete_share,
        rack_pure_share=gangs.rack_pure_share,
        due_to_bind_seconds=gangs.due_to_bind_seconds,
        bind_latency_seconds=gangs.bind_latency_seconds,
        completion_seconds=gangs.completion_seconds,
        partial_seconds=gangs.partial_seconds,
    )
