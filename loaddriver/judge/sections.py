"""The parts of the summary, each from the rows or the recorders' counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from loaddriver.judge.facts import RunFacts
from loaddriver.judge.percentiles import curve, quantiles
from loaddriver.judge.schema import (
    OVERALL,
    Audit,
    Backlog,
    Clock,
    Hop,
    Machines,
    Nodes,
    Phase,
    Pods,
    Slice,
    WatchHealth,
)
from loaddriver.judge.timeline import Timeline, backlog_peaks
from loaddriver.record.audit import AuditStamps
from loaddriver.record.clocks import receipt_lags_seconds
from loaddriver.record.hops import HOPS
from loaddriver.record.journal import Journal, count_machines
from loaddriver.record.nodes import NodeLife
from loaddriver.record.recorder import Observations
from loaddriver.record.rows import PodRow

_PLACEMENTS = {True: "foundRoom", False: "waitedForNode", None: "unknown"}


def pods_section(planned: int, rows: Sequence[PodRow]) -> Pods:
    """How many pods came to what."""
    bound = sum(row.bound_micros is not None for row in rows)
    return Pods(
        planned=planned,
        created=len(rows),
        bound=bound,
        never_bound=len(rows) - bound,
        withdrawn=sum(r.bound_micros is None and r.deleted_micros is not None for r in rows),
    )


def slices(rows: Sequence[PodRow], key: Callable[[PodRow], str]) -> dict[str, Slice]:
    """Rows by key, in the keys' order."""
    parts: defaultdict[str, list[PodRow]] = defaultdict(list)
    for row in rows:
        parts[key(row)].append(row)
    return {name: slice_of(parts[name]) for name in sorted(parts)}


def placement(rows: Sequence[PodRow]) -> dict[str, Slice]:
    """Bound pods by whether their node was there before them."""
    bound = [row for row in rows if row.bound_micros is not None]
    return slices(bound, lambda row: _PLACEMENTS[row.found_room])


def slice_of(rows: Sequence[PodRow]) -> Slice:
    """Numbers and quantiles of any rows."""
    ended, unended = waits(rows)
    return Slice(
        pods=len(rows),
        bound=len(ended),
        never_bound=len(unended),
        bind_latency_seconds=quantiles(ended, unended),
    )


def waits(rows: Iterable[PodRow]) -> tuple[list[float], list[float]]:
    """Waits of bound pods, and of pods never bound."""
    ended: list[float] = []
    unended: list[float] = []
    for row in rows:
        (unended if row.bound_micros is None else ended).append(row.waited_seconds)
    return ended, unended


def phase(rows: Sequence[PodRow], begin_micros: int, end_micros: int) -> Phase:
    """The pods created from `begin` up to `end`, and the backlog of that time."""
    own = [row for row in rows if begin_micros <= row.created_micros < end_micros]
    start = begin_micros // 1_000_000
    peaks = backlog_peaks(rows, start, max(1, (end_micros - 1) // 1_000_000 - start + 1))
    part = slice_of(own)
    return Phase(
        pods=part.pods,
        bound=part.bound,
        never_bound=part.never_bound,
        bind_latency_seconds=part.bind_latency_seconds,
        seconds=(end_micros - begin_micros) / 1e6,
        backlog_max=int(peaks.max()),
    )


def phases(rows: Sequence[PodRow], facts: RunFacts) -> tuple[Phase, Phase | None]:
    """Ramp and soak; a run that never reached its soak has only the one."""
    turn = facts.soak_started_micros
    if turn is None:
        return phase(rows, facts.started_micros, facts.ended_micros), None
    return phase(rows, facts.started_micros, turn), phase(rows, turn, facts.ended_micros)


def hops_section(rows: Sequence[PodRow]) -> dict[str, Hop]:
    """Each hop that any pod has, in the order in which they happen."""
    parts = [row.hops_micros() for row in rows if row.bound_micros is not None]
    found: dict[str, Hop] = {}
    for hop in HOPS:
        micros = np.array([part[hop] for part in parts if hop in part], dtype=np.float64)
        if not len(micros):
            continue
        p50, p90, p99 = np.quantile(micros, [0.5, 0.9, 0.99], method="inverted_cdf") / 1e6
        found[hop] = Hop(
            p50=float(p50),
            p90=float(p90),
            p99=float(p99),
            max=float(micros.max()) / 1e6,
            mean=round(float(micros.sum()) / len(parts) / 1e6, 6),
            pods=len(micros),
        )
    return found


def machines_section(journal: Journal | None, lives: Sequence[NodeLife]) -> Machines:
    """Counted by the shards where they keep a journal; otherwise what the Nodes show."""
    if journal is not None and journal.stories:
        counts = count_machines(journal)
        return Machines(
            configured=counts.configured,
            created=counts.created,
            deleted=counts.deleted,
            source="journal",
        )
    joined = sum(life.ready_micros is not None for life in lives)
    return Machines(configured=joined, created=None, deleted=None, source="nodes")


def nodes_section(lives: Sequence[NodeLife], timeline: Timeline) -> Nodes:
    """Counts of Node objects."""
    return Nodes(
        created=len(lives),
        deleted=sum(life.deleted_micros is not None for life in lives),
        ready_max=max(timeline.nodes_ready),
        ready_at_end=timeline.nodes_ready[-1],
    )


def backlog_section(rows: Sequence[PodRow], timeline: Timeline) -> Backlog:
    """The worst moment, and what was left."""
    left = sum(row.bound_micros is None and row.deleted_micros is None for row in rows)
    return Backlog(max=max(timeline.backlog), at_end=left)


def curves(rows: Sequence[PodRow]) -> dict[str, list[tuple[float, float]]]:
    """The share of pods bound over time since creation, over all pods and by archetype."""
    parts: defaultdict[str, list[PodRow]] = defaultdict(list)
    for row in rows:
        parts[row.archetype].append(row)
    return {
        OVERALL: curve(*waits(rows)),
        **{name: curve(*waits(parts[name])) for name in sorted(parts) if name},
    }


def audit_section(
    observed: Sequence[Observations], rows: Sequence[PodRow], journal: Journal | None
) -> Audit:
    """What the recorders read, missed and could not read."""
    logs = [each.audit for each in observed if each.audit is not None]
    logged = {each.cluster for each in observed if each.audit is not None}
    ours = [row for row in rows if row.cluster in logged]
    binders = Counter(row.bound_by or "unknown" for row in rows if row.bound_micros is not None)
    return Audit(
        available=len(logs) == len(observed),
        lines=sum(log.lines for log in logs),
        undecodable=sum(log.undecodable for log in logs),
        nameless=sum(log.nameless for log in logs),
        restarts=sum(each.audit_restarts for each in observed),
        missed_pods=sum(_missed_pod(row, observed) for row in ours if row.source != "audit"),
        missed_bindings=sum(row.bound_micros is not None and not row.bound_by for row in ours),
        bound_by=dict(sorted(binders.items())),
        requests=_summed(logs, lambda log: log.succeeded),
        failed_requests=_summed(logs, lambda log: log.failed),
        watch=WatchHealth(
            resumed=sum(each.watch_resumed for each in observed),
            listed=sum(each.watch_listed for each in observed),
        ),
        clock=_clock(receipt_lags_seconds(observed)),
        journal_undecodable=None if journal is None else journal.undecodable,
    )


def _missed_pod(row: PodRow, observed: Sequence[Observations]) -> bool:
    log = next(each.audit for each in observed if each.cluster == row.cluster)
    return log is not None and row.uid not in log.pods


def _summed(
    logs: Sequence[AuditStamps], counter: Callable[[AuditStamps], Counter[str]]
) -> dict[str, int]:
    total: Counter[str] = Counter()
    for log in logs:
        total.update(counter(log))
    return dict(sorted(total.items()))


def _clock(lags: Sequence[float]) -> Clock:
    if not lags:
        return Clock(samples=0, median_seconds=None, p99_seconds=None, min_seconds=None)
    median, p99 = np.quantile(lags, [0.5, 0.99], method="inverted_cdf")
    return Clock(
        samples=len(lags),
        median_seconds=float(median),
        p99_seconds=float(p99),
        min_seconds=min(lags),
    )
