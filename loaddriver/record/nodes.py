"""Nodes as the story of one name: a machine may join, leave and join again under it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from loaddriver.manifests import INSTANCE_TYPE_KEY
from loaddriver.record.audit import AuditStamps
from loaddriver.record.recorder import Observations
from loaddriver.record.watching import NodeSighting

_WATCH_AHEAD_MICROS = 1_000_000
"""A watch may deliver a Node before the server has logged its answer to the creator."""


@dataclass(frozen=True, slots=True)
class NodeLife:
    """One joining of a machine. From the log where it says so, else as the watch saw it.

    `ready_at_end`: it was there and ready when observation ended.
    """

    name: str
    created_micros: int
    previous_micros: int
    ready_micros: int | None
    deleted_micros: int | None
    rack: str
    instance_type: str = ""
    ready_at_end: bool = False


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
        _life(name, log, (previous, start, end), sightings.get(start))
        for previous, start, end in zip([0, *starts], starts, ends, strict=False)
    ]


def _life(
    name: str,
    log: AuditStamps,
    span: tuple[int, int, int | None],
    sighting: NodeSighting | None,
) -> NodeLife:
    previous, start, end = span
    ready = _within(log.nodes_ready.get(name, ()), start, end)
    unready = _within(log.nodes_unready.get(name, ()), start, end)
    gone = _deleted(_within(log.nodes_deleted.get(name, ()), start, end), end, sighting)
    seen = sighting.labels.get(INSTANCE_TYPE_KEY, "") if sighting else ""
    return NodeLife(
        name=name,
        created_micros=start,
        previous_micros=previous,
        ready_micros=_ready(ready, sighting),
        deleted_micros=gone,
        rack=log.racks.get((name, start), sighting.rack if sighting else ""),
        instance_type=log.instance_types.get((name, start), seen),
        ready_at_end=gone is None and _ready_last(ready, unready, sighting),
    )


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


def _ready_last(
    ready: Sequence[int], unready: Sequence[int], sighting: NodeSighting | None
) -> bool:
    if ready or unready:
        return max(ready, default=0) > max(unready, default=0)
    return sighting is not None and sighting.ready


def _deleted(logged: Sequence[int], end: int | None, sighting: NodeSighting | None) -> int | None:
    """A name that is used again was free before, whether or not anybody saw its deletion."""
    if logged:
        return min(logged)
    return sighting.deleted_micros if sighting and sighting.deleted_micros is not None else end
