"""Where a workload shall run, and with how many replicas. Pure.

Replicas that run stay where they are: only what is missing is placed, and only what is too much
is taken away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bigfleet.federation.shares import Bounds
from bigfleet.federation.shares.filling import lower_evenly, raise_evenly


@dataclass(frozen=True)
class Place:
    """One cluster as far as placing needs it; `has` is None where the workload is not."""

    name: str
    bounds: Bounds
    selected: bool
    reachable: bool
    has: int | None
    ready: int


@dataclass(frozen=True)
class Placement:
    """Where it has to be: with so many replicas, or None for as many as there are."""

    replicas: Mapping[str, int | None]
    removed: Sequence[str]


def divided(replicas: int, places: Sequence[Place]) -> Placement:
    """By the workload's own wish: evenly, within the preferences, the order deciding odd ones."""
    apart = sum(p.has or 0 for p in places if not p.reachable)
    able = [p for p in places if p.reachable and p.selected]
    wanted = max(0, replicas - apart)
    most = {p.name: p.bounds.most for p in able}
    least = {p.name: min(p.bounds.least, p.bounds.most) for p in able}
    levels = {p.name: min(max(p.has or 0, least[p.name]), most[p.name]) for p in able}
    levels = raise_evenly(levels, most, wanted - sum(levels.values()))
    levels = lower_evenly(levels, least, sum(levels.values()) - wanted)
    levels = lower_evenly(levels, dict.fromkeys(levels, 0), sum(levels.values()) - wanted)
    kept = {p.name: levels[p.name] for p in able if levels[p.name] or p.has is not None}
    going = [p for p in places if p.reachable and not p.selected and p.has is not None]
    ready = sum(min(p.ready, levels[p.name]) for p in able)
    return Placement(kept, _removable(going, ready, wanted))


def listed(names: Sequence[str], least_ready: int, places: Sequence[Place]) -> Placement:
    """By an autoscaler's list: there with the replicas it has, or one; elsewhere not.

    Zero becomes one: an HPA lets a target with zero replicas alone, and it would stay there.
    Elsewhere it goes only once `least_ready` replicas are ready in the listed clusters.
    """
    staying = [p for p in places if p.name in names]
    going = [p for p in places if p.name not in names and p.reachable and p.has is not None]
    kept = {p.name: 1 if p.has == 0 else None for p in staying if p.reachable}
    return Placement(kept, _removable(going, sum(p.ready for p in staying), least_ready))


def _removable(going: Sequence[Place], ready: int, needed: int) -> list[str]:
    """Those whose loss leaves enough replicas ready, or that have none ready themselves."""
    if ready >= max(1, min(needed, ready + sum(p.ready for p in going))):
        return [p.name for p in going]
    return [p.name for p in going if p.ready == 0]
