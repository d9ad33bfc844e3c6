"""Sections of the summary, from the rows or the recorders' counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from loaddriver.judge.facts import RunFacts
from loaddriver.judge.latency import (
    bound_batches,
    bound_wait_groups,
    create_to_bind,
    due_to_bind,
    observed_and_censored,
)
from loaddriver.judge.percentiles import curve, quantiles
from loaddriver.judge.schema import (
    OVERALL,
    Backlog,
    Hop,
    Machines,
    Nodes,
    OpenStage,
    Phase,
    Pods,
    Slice,
)
from loaddriver.judge.timeline import Timeline, backlog_peaks
from loaddriver.record.due import MissingPod
from loaddriver.record.hops import HOPS
from loaddriver.record.journal import Journal, count_machines
from loaddriver.record.nodes import NodeLifetime
from loaddriver.record.rows import PodRow

_PLACEMENTS = {True: "nodeWasReady", False: "waitedForNode", None: "unknown"}


def pods_section(planned: int, rows: Sequence[PodRow], missing: Sequence[MissingPod] = ()) -> Pods:
    """Counts of pods by outcome."""
    bound = sum(row.bound_micros is not None for row in rows)
    return Pods(
        planned=planned,
        created=len(rows),
        bound=bound,
        never_bound=len(rows) - bound,
        withdrawn=sum(r.bound_micros is None and r.deleted_micros is not None for r in rows),
        never_created=len(missing),
        without_due_time=sum(row.due_micros is None for row in rows),
    )


def slices(
    rows: Sequence[PodRow],
    key: Callable[[PodRow | MissingPod], str],
    missing: Sequence[MissingPod] = (),
) -> dict[str, Slice]:
    """Slices by key, in the keys' order."""
    parts: defaultdict[str, list[PodRow]] = defaultdict(list)
    for row in rows:
        parts[key(row)].append(row)
    uncreated: defaultdict[str, list[MissingPod]] = defaultdict(list)
    for pod in missing:
        uncreated[key(pod)].append(pod)
    names = sorted({*parts, *uncreated})
    return {name: slice_of(parts[name], uncreated[name]) for name in names}


def placement(rows: Sequence[PodRow]) -> dict[str, Slice]:
    """Bound pods by whether their node was ready before them."""
    parts: defaultdict[str, list[PodRow]] = defaultdict(list)
    for row in rows:
        if row.bound_micros is not None:
            parts[_PLACEMENTS[row.node_was_ready]].append(row)
    return {name: slice_of(parts[name]) for name in sorted(parts)}


def slice_of(rows: Sequence[PodRow], missing: Sequence[MissingPod] = ()) -> Slice:
    """Counts and quantiles of rows, and of pods that were never created."""
    bound = sum(row.bound_micros is not None for row in rows)
    return Slice(
        pods=len(rows),
        bound=bound,
        never_bound=len(rows) - bound,
        never_created=len(missing),
        due_to_bind_seconds=due_to_bind(rows, missing),
        bind_latency_seconds=create_to_bind(rows),
    )


def phase(
    rows: Sequence[PodRow], missing: Sequence[MissingPod], begin_micros: int, end_micros: int
) -> Phase:
    """The pods due from `begin` up to `end`, and the backlog of that period."""
    own = _due_within(rows, begin_micros, end_micros)
    uncreated = [pod for pod in missing if begin_micros <= pod.due_micros < end_micros]
    start = begin_micros // 1_000_000
    peaks = backlog_peaks(rows, start, max(1, (end_micros - 1) // 1_000_000 - start + 1))
    part = slice_of(own, uncreated)
    return Phase(
        pods=part.pods,
        bound=part.bound,
        never_bound=part.never_bound,
        never_created=part.never_created,
        due_to_bind_seconds=part.due_to_bind_seconds,
        bind_latency_seconds=part.bind_latency_seconds,
        seconds=(end_micros - begin_micros) / 1e6,
        backlog_max=int(peaks.max()),
    )


def open_stage(
    rows: Sequence[PodRow], missing: Sequence[MissingPod], begin_micros: int, end_micros: int
) -> OpenStage:
    """That phase, and its bound pods by placement."""
    whole = phase(rows, missing, begin_micros, end_micros)
    own = _due_within(rows, begin_micros, end_micros)
    return OpenStage(**msgspec.structs.asdict(whole), placement=placement(own))


def _due_within(rows: Sequence[PodRow], begin_micros: int, end_micros: int) -> list[PodRow]:
    return [row for row in rows if begin_micros <= row.wait_began_micros < end_micros]


class Phases(NamedTuple):
    """The phases of a run; None if it has no such phase or did not reach it."""

    ramp: Phase
    open_stage: OpenStage | None
    soak: Phase | None


def phases(rows: Sequence[PodRow], missing: Sequence[MissingPod], facts: RunFacts) -> Phases:
    """Each phase lasts until the next one begins, the last until the end."""
    began = facts.ramp_started_micros or facts.started_micros
    starts = [began, facts.open_stage_started_micros, facts.soak_started_micros]
    ends = [*starts[1:], facts.ended_micros]

    def span(number: int) -> tuple[int, int] | None:
        start = starts[number]
        end = next(each for each in ends[number:] if each is not None)
        return None if start is None else (start, end)

    ramp, stage, soak = span(0), span(1), span(2)
    assert ramp is not None
    return Phases(
        phase(rows, missing, *ramp),
        open_stage(rows, missing, *stage) if stage else None,
        phase(rows, missing, *soak) if soak else None,
    )


def hops_section(rows: Sequence[PodRow]) -> dict[str, Hop]:
    """Each hop of any pod, in order."""
    bound = [row for row in rows if row.bound_micros is not None]
    hops = [row.hops_micros() for row in bound]
    batches = bound_batches(rows)
    parts = list(zip(batches, bound_wait_groups(rows, batches), hops, strict=True))
    found: dict[str, Hop] = {}
    for hop in HOPS:
        having = [(part[hop], *keys) for *keys, part in parts if hop in part]
        if not having:
            continue
        micros, objects, machines = zip(*having, strict=True)
        spread = quantiles([each / 1e6 for each in micros], (), objects, machines)
        found[hop] = Hop(
            p50=spread.p50,
            p90=spread.p90,
            p99=spread.p99,
            max=spread.max,
            mean=round(sum(micros) / len(parts) / 1e6, 6),
            pods=len(micros),
        )
    return found


def machines_section(journal: Journal | None, lifetimes: Sequence[NodeLifetime]) -> Machines:
    """Counts of machines, from the shards' journals if there are any, else from the Nodes."""
    if journal is not None and journal.stories:
        counts = count_machines(journal)
        return Machines(
            configured=counts.configured,
            created=counts.created,
            deleted=counts.deleted,
            source="journal",
        )
    joined = sum(lifetime.ready_micros is not None for lifetime in lifetimes)
    return Machines(configured=joined, created=None, deleted=None, source="nodes")


def nodes_section(lifetimes: Sequence[NodeLifetime], timeline: Timeline) -> Nodes:
    """Counts of Node objects."""
    return Nodes(
        created=len(lifetimes),
        deleted=sum(lifetime.deleted_micros is not None for lifetime in lifetimes),
        ready_max=max(timeline.nodes_ready),
        ready_at_end=timeline.nodes_ready[-1],
    )


def backlog_section(rows: Sequence[PodRow], timeline: Timeline) -> Backlog:
    """The largest backlog, and that at the end."""
    left = sum(row.bound_micros is None and row.deleted_micros is None for row in rows)
    return Backlog(max=max(timeline.backlog), at_end=left)


def curves(
    rows: Sequence[PodRow], missing: Sequence[MissingPod] = ()
) -> dict[str, list[tuple[float, float]]]:
    """The share of bound pods by time since they were due, over all pods and by archetype."""
    parts: defaultdict[str, list[PodRow]] = defaultdict(list)
    for row in rows:
        parts[row.archetype].append(row)
    uncreated: defaultdict[str, list[MissingPod]] = defaultdict(list)
    for pod in missing:
        uncreated[pod.archetype].append(pod)
    return {
        OVERALL: curve(*observed_and_censored(rows, missing)),
        **{
            name: curve(*observed_and_censored(parts[name], uncreated[name]))
            for name in sorted(parts)
            if name
        },
    }
