"""Node lifetimes: a machine may join, leave and join again under one name."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from loaddriver.plan.manifests import INSTANCE_TYPE_KEY
from loaddriver.record.audit import AuditTimestamps
from loaddriver.record.recorder import Observations
from loaddriver.record.watching import NodeObservation

_WATCH_AHEAD_MICROS = 1_000_000
"""A watch may deliver a Node before the server logs its response to the creation."""


@dataclass(frozen=True, slots=True)
class NodeLifetime:
    """One lifetime of a Node, from the log if it has it, else from the watch.

    `ready_at_end`: it existed and was ready when observation ended.
    """

    name: str
    created_micros: int
    previous_micros: int
    ready_micros: int | None
    deleted_micros: int | None
    rack: str
    instance_type: str = ""
    ready_at_end: bool = False


def node_lifetimes(observed: Observations) -> dict[str, list[NodeLifetime]]:
    """Every lifetime of every node name of a cluster, in order of time."""
    log = observed.audit or AuditTimestamps()
    seen: dict[str, list[NodeObservation]] = {}
    for observation in observed.watch.nodes.values():
        seen.setdefault(observation.name, []).append(observation)
    return {
        name: _lifetimes(name, log, seen.get(name, ())) for name in {**seen, **log.nodes_created}
    }


def lifetime_at(lifetimes: Sequence[NodeLifetime], moment_micros: int) -> NodeLifetime | None:
    """The latest lifetime that had started by then."""
    position = bisect_right([lifetime.created_micros for lifetime in lifetimes], moment_micros)
    return lifetimes[position - 1] if position else None


def _lifetimes(
    name: str, log: AuditTimestamps, seen: Sequence[NodeObservation]
) -> list[NodeLifetime]:
    logged = sorted(log.nodes_created.get(name, ()))
    starts = logged or sorted(observation.created_micros for observation in seen)
    observations = _by_start(starts, seen)
    ends = [*starts[1:], None]
    return [
        _lifetime(name, log, (previous, start, end), observations.get(start))
        for previous, start, end in zip([0, *starts], starts, ends, strict=False)
    ]


def _lifetime(
    name: str,
    log: AuditTimestamps,
    span: tuple[int, int, int | None],
    observation: NodeObservation | None,
) -> NodeLifetime:
    previous, start, end = span
    ready = _within(log.nodes_ready.get(name, ()), start, end)
    unready = _within(log.nodes_unready.get(name, ()), start, end)
    gone = _deleted(_within(log.nodes_deleted.get(name, ()), start, end), end, observation)
    seen = observation.labels.get(INSTANCE_TYPE_KEY, "") if observation else ""
    return NodeLifetime(
        name=name,
        created_micros=start,
        previous_micros=previous,
        ready_micros=_ready(ready, observation),
        deleted_micros=gone,
        rack=log.racks.get((name, start), observation.rack if observation else ""),
        instance_type=log.instance_types.get((name, start), seen),
        ready_at_end=gone is None and _ready_last(ready, unready, observation),
    )


def _by_start(starts: Sequence[int], seen: Sequence[NodeObservation]) -> dict[int, NodeObservation]:
    """The observation of each lifetime, by its start."""
    found: dict[int, NodeObservation] = {}
    for observation in sorted(seen, key=lambda each: each.created_micros):
        position = bisect_right(starts, observation.created_micros + _WATCH_AHEAD_MICROS)
        found[starts[max(position - 1, 0)]] = observation
    return found


def _within(logged: Sequence[int], start: int, end: int | None) -> list[int]:
    return [at for at in logged if at >= start and (end is None or at <= end)]


def _ready(logged: Sequence[int], observation: NodeObservation | None) -> int | None:
    if logged:
        return min(logged)
    return observation.ready_micros if observation else None


def _ready_last(
    ready: Sequence[int], unready: Sequence[int], observation: NodeObservation | None
) -> bool:
    if ready or unready:
        return max(ready, default=0) > max(unready, default=0)
    return observation is not None and observation.ready


def _deleted(
    logged: Sequence[int], end: int | None, observation: NodeObservation | None
) -> int | None:
    """The end of a lifetime: a reused name was deleted before, even if that was not observed."""
    if logged:
        return min(logged)
    return (
        observation.deleted_micros
        if observation and observation.deleted_micros is not None
        else end
    )
