"""Where a workload shall run, and with how many replicas. Pure.

Replicas that run stay where they are: only what is missing is placed, and only what is too much
is taken away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bigfleet.fedhpa.shares import ClusterBounds
from bigfleet.fedhpa.shares.division import lower_evenly, raise_evenly


@dataclass(frozen=True)
class ClusterPlacement:
    """One cluster as far as placing needs it; `has` is None where the workload is not."""

    name: str
    bounds: ClusterBounds
    selected: bool
    reachable: bool
    has: int | None
    ready: int


@dataclass(frozen=True)
class Placement:
    """Where it has to be: with so many replicas, or None for as many as there are."""

    replicas: Mapping[str, int | None]
    removed: Sequence[str]


def divide_replicas(replicas: int, places: Sequence[ClusterPlacement]) -> Placement:
    """By the workload's own wish: evenly, within the preferences, the order deciding odd ones."""
    apart = sum(p.has or 0 for p in places if not p.reachable)
    able = [p for p in places if p.reachable and p.selected]
    wanted = max(0, replicas - apart)
    max_replicas = {p.name: p.bounds.max_replicas for p in able}
    min_replicas = {p.name: min(p.bounds.min_replicas, p.bounds.max_replicas) for p in able}
    levels = {
        p.name: min(max(p.has or 0, min_replicas[p.name]), max_replicas[p.name]) for p in able
    }
    levels = raise_evenly(levels, max_replicas, wanted - sum(levels.values()))
    levels = lower_evenly(levels, min_replicas, sum(levels.values()) - wanted)
    levels = lower_evenly(levels, dict.fromkeys(levels, 0), sum(levels.values()) - wanted)
    kept = {p.name: levels[p.name] for p in able if levels[p.name] or p.has is not None}
    leaving = [p for p in places if p.reachable and not p.selected and p.has is not None]
    ready = sum(min(p.ready, levels[p.name]) for p in able)
    return Placement(kept, _removable(leaving, ready, wanted))


def placement_by_list(
    names: Sequence[str], min_ready: int, places: Sequence[ClusterPlacement]
) -> Placement:
    """By an autoscaler's list: there with the replicas it has, or one; elsewhere not.

    Zero becomes one: an HPA lets a target with zero replicas alone, and it would stay there.
    Elsewhere it goes only once `min_ready` replicas are ready in the listed clusters.
    """
    staying = [p for p in places if p.name in names]
    leaving = [p for p in places if p.name not in names and p.reachable and p.has is not None]
    kept = {p.name: 1 if p.has == 0 else None for p in staying if p.reachable}
    return Placement(kept, _removable(leaving, sum(p.ready for p in staying), min_ready))


def _removable(leaving: Sequence[ClusterPlacement], ready: int, needed: int) -> list[str]:
    """Those whose loss leaves enough replicas ready, or that have none ready themselves."""
    if ready >= max(1, min(needed, ready + sum(p.ready for p in leaving))):
        return [p.name for p in leaving]
    return [p.name for p in leaving if p.ready == 0]
