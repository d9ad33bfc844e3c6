"""Where a workload runs, and with how many replicas. Pure.

Running replicas stay where they are: only missing ones are placed, and surplus ones removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bigfleet.fedhpa.shares import ClusterBounds
from bigfleet.fedhpa.shares.division import lower_evenly, raise_evenly


@dataclass(frozen=True)
class ClusterPlacement:
    """One cluster; `has` is its number of replicas, None without the workload."""

    name: str
    bounds: ClusterBounds
    selected: bool
    reachable: bool
    has: int | None
    ready: int


@dataclass(frozen=True)
class Placement:
    """Replicas by cluster, None to leave them as they are, and the clusters to remove it from."""

    replicas: Mapping[str, int | None]
    removed: Sequence[str]


def divide_replicas(replicas: int, places: Sequence[ClusterPlacement]) -> Placement:
    """Divide the workload's own replicas evenly, within the preferences; odd ones by order."""
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
    """Place it in an autoscaler's clusters, with the replicas it has there.

    Zero becomes one, as an HPA ignores a target with zero replicas. It is removed from other
    clusters only once `min_ready` replicas are ready in the listed ones.
    """
    staying = [p for p in places if p.name in names]
    leaving = [p for p in places if p.name not in names and p.reachable and p.has is not None]
    kept = {p.name: 1 if p.has == 0 else None for p in staying if p.reachable}
    return Placement(kept, _removable(leaving, sum(p.ready for p in staying), min_ready))


def _removable(leaving: Sequence[ClusterPlacement], ready: int, needed: int) -> list[str]:
    """The clusters without which enough replicas are ready, or that have none ready."""
    if ready >= max(1, min(needed, ready + sum(p.ready for p in leaving))):
        return [p.name for p in leaving]
    return [p.name for p in leaving if p.ready == 0]
