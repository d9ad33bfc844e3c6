"""Nodes as the story of one name: a machine may join, leave and join again under it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from loaddriver.record.audit import AuditStamps
from loaddriver.record.recorder import Observations
from loaddriver.record.watching import NodeSighting

_WATCH_AHEAD_MICROS = 1_000_000
"""A watch may deliver a Node before the server has logged its answer to the creator."""


@dataclass(frozen=True, slots=True)
class NodeLife:
    """One joining of a machine. From the log where it says so, else as the watch saw it."""

    name: str
    created_micros: int
    previous_micros: int
    ready_micros: int | None
    deleted_micros: int | None
    rack: str


def node_lives(observed: Observations) -> dict[str, list[NodeLife]]:
    """Every life of every node name of a cluster, in order of time."""
    log = observed.audit or AuditStamps()
    seen: dict[str, list[NodeSighting]] = {}
    for sighting in observed.watch.nodes.values():
        seen.setdefault(sighting.name, []).append(sighting)
    return {name: _lives(name, log, seen.get(name, ())) for name in {**seen, **log.nodes_created}}


def life_at(lives: Sequence[NodeLife], moment_micros: int) -> NodeLife | None:
    """The life that had begun by then."""
    position = bisect_right([life.created_micros for life in lives], moment_micros)
    return lives[position - 1] if position else None


def _lives(name: str, log: AuditStamps, seen: Sequence[NodeSighting]) -> list[NodeLife]:
    logged = sorted(log.nodes_created.get(name, ()))
    starts = logged or sorted(sighting.created_micros for sighting in seen)
    sightings = _by_start(starts, seen)
    ends = [*starts[1:], None]
    return [
        NodeLife(
            name=name,
            created_micros=start,
            previous_micros=previous,
            ready_micros=_ready(_within(log.nodes_ready.get(name, ()), start, end), sighting),
            deleted_micros=_deleted(
                _within(log.nodes_deleted.get(name, ()), start, end), end, sighting
            ),
            rack=log.racks.get((name, start), sighting.rack if sighting else ""),
        )
        for previous, start, end in zip([0, *starts], starts, ends, strict=False)
        for sighting in [sightings.get(start)]
    ]


def _by_start(starts: Sequence[int], seen: Sequence[NodeSighting]) -> dict[int, NodeSighting]:
    """The sighting of each life, by when that began."""
    found: dict[int, NodeSighting] = {}
    for sighting in sorted(seen, key=lambda each: each.created_micros):
        position = bisect_right(starts, sighting.created_micros + _WATCH_AHEAD_MICROS)
        found[starts[max(position - 1, 0)]] = sighting
    return found


def _within(logged: Sequence[int], start: int, end: int | None) -> list[int]:
    return [at for at in logged if at >= start and (end is None or at <= end)]


def _ready(logged: Sequence[int], sighting: NodeSighting | None) -> int | None:
    if logged:
        return min(logged)
    return sighting.ready_micros if sighting else None


def _deleted(logged: Sequence[int], end: int | None, sighting: NodeSighting | None) -> int | None:
    """A name that is used again was free before, whether or not anybody saw its deletion."""
    if logged:
        return min(logged)
    return sighting.deleted_micros if sighting and sighting.deleted_micros is not None else end
