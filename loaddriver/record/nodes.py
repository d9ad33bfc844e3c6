"""Nodes as the story of one name: a machine may join, leave and join again under it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loaddriver.record.recorder import Observations
from loaddriver.record.watching import NodeSighting

_WATCH_AHEAD_MICROS = 1_000_000
"""A watch may deliver a Node before the server has logged its answer to the creator."""


@dataclass(frozen=True, slots=True)
class NodeLife:
    """One joining of a machine; `ready` and `rack` are known from the watch only."""

    name: str
    created_micros: int
    previous_micros: int
    ready_micros: int | None
    deleted_micros: int | None
    rack: str


def node_lives(observed: Observations) -> dict[str, list[NodeLife]]:
    """Every life of every node name of a cluster, in order of time."""
    seen: dict[str, list[NodeSighting]] = {}
    for sighting in observed.watch.nodes.values():
        seen.setdefault(sighting.name, []).append(sighting)
    created: Mapping[str, Sequence[int]] = observed.audit.nodes_created if observed.audit else {}
    deleted: Mapping[str, Sequence[int]] = observed.audit.nodes_deleted if observed.audit else {}
    return {
        name: _lives(name, created.get(name, ()), deleted.get(name, ()), seen.get(name, ()))
        for name in {**seen, **created}
    }


def life_at(lives: Sequence[NodeLife], moment_micros: int) -> NodeLife | None:
    """The life that had begun by then."""
    position = bisect_right([life.created_micros for life in lives], moment_micros)
    return lives[position - 1] if position else None


def _lives(
    name: str, created: Sequence[int], deleted: Sequence[int], seen: Sequence[NodeSighting]
) -> list[NodeLife]:
    starts = sorted(created) or sorted(sighting.created_micros for sighting in seen)
    by_start: dict[int, NodeSighting] = {}
    for sighting in sorted(seen, key=lambda each: each.created_micros):
        position = bisect_right(starts, sighting.created_micros + _WATCH_AHEAD_MICROS)
        by_start[starts[max(position - 1, 0)]] = sighting
    ends = [*starts[1:], None]
    lives = []
    for previous, start, end in zip([0, *starts], starts, ends, strict=False):
        sighting_of_it = by_start.get(start)
        lives.append(
            NodeLife(
                name=name,
                created_micros=start,
                previous_micros=previous,
                ready_micros=sighting_of_it.ready_micros if sighting_of_it else None,
                deleted_micros=_deleted(start, end, deleted, sighting_of_it),
                rack=sighting_of_it.rack if sighting_of_it else "",
            )
        )
    return lives


def _deleted(
    start: int, end: int | None, logged: Sequence[int], sighting: NodeSighting | None
) -> int | None:
    within = [at for at in logged if at >= start and (end is None or at <= end)]
    if within:
        return min(within)
    return sighting.deleted_micros if sighting else end
