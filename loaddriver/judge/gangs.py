"""Gangs: whether all members ran at once, in one rack, and who placed the first pod."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from loaddriver.judge.latency import create_to_bind, due_to_bind
from loaddriver.judge.percentiles import Quantiles, quantiles
from loaddriver.record.due import MissingPod
from loaddriver.record.rows import PodRow

GroupKey = tuple[str, str]
"""Cluster and group."""


class Gangs(msgspec.Struct, frozen=True, rename="camel"):
    """All groups of a run. Every group is anchored, scheduler-first or unplaced.

    `complete`: all planned members were bound at some time. `rack_pure`: some were bound, and never
    in two racks or an unknown one. `split`: bound members were in two racks at some time. Shares
    are of all groups. `unplanned` groups are not in the plan. `completion_seconds` is from when a
    group was due until it was complete, `partial_seconds` from its first binding; groups that were
    never complete are censored (in the latter only those with a binding). `due_to_bind_seconds` is
    over the groups' pods, each from its own due time, `bind_latency_seconds` from its creation.
    """

    count: int
    complete: int
    rack_pure: int
    split: int
    anchored: int
    scheduler_first: int
    unplaced: int
    unplanned: int
    complete_share: float | None
    rack_pure_share: float | None
    due_to_bind_seconds: Quantiles
    bind_latency_seconds: Quantiles
    completion_seconds: Quantiles
    partial_seconds: Quantiles


@dataclass(frozen=True)
class _GangOutcome:
    """`complete` and `partial` end when the group was complete, or with observation."""

    is_complete: bool
    complete_seconds: float
    partial_seconds: float | None
    is_rack_pure: bool
    split: bool
    start: str


def judge_gangs(
    rows: Sequence[PodRow],
    planned: Mapping[GroupKey, int],
    missing: Sequence[MissingPod] = (),
) -> Gangs:
    """Judge the groups of the plan (with their numbers of pods) and any others."""
    members: defaultdict[GroupKey, list[PodRow]] = defaultdict(list)
    for row in rows:
        if row.group:
            members[row.cluster, row.group].append(row)
    uncreated: defaultdict[GroupKey, list[MissingPod]] = defaultdict(list)
    for pod in missing:
        if pod.group:
            uncreated[pod.cluster, pod.group].append(pod)
    keys = sorted({*planned, *members})
    outcomes = [
        _outcome(members[key], uncreated[key], planned.get(key, len(members[key]))) for key in keys
    ]
    grouped = [row for of in members.values() for row in of]
    starts = Counter(outcome.start for outcome in outcomes)
    complete = sum(outcome.is_complete for outcome in outcomes)
    is_rack_pure = sum(outcome.is_rack_pure for outcome in outcomes)
    return Gangs(
        count=len(keys),
        complete=complete,
        rack_pure=is_rack_pure,
        split=sum(outcome.split for outcome in outcomes),
        anchored=starts["anchored"],
        scheduler_first=starts["scheduler-first"],
        unplaced=starts["unplaced"],
        unplanned=sum(key not in planned for key in keys),
        complete_share=complete / len(keys) if keys else None,
        rack_pure_share=is_rack_pure / len(keys) if keys else None,
        due_to_bind_seconds=due_to_bind(grouped, [pod for pod in missing if pod.group]),
        bind_latency_seconds=create_to_bind(grouped),
        completion_seconds=_spans([(o.is_complete, o.complete_seconds) for o in outcomes]),
        partial_seconds=_spans(
            [(o.is_complete, o.partial_seconds) for o in outcomes if o.partial_seconds is not None]
        ),
    )


def _spans(spans: Sequence[tuple[bool, float]]) -> Quantiles:
    return quantiles([s for ended, s in spans if ended], [s for ended, s in spans if not ended])


def _outcome(members: Sequence[PodRow], uncreated: Sequence[MissingPod], size: int) -> _GangOutcome:
    began = [row.wait_began_micros for row in members] + [pod.due_micros for pod in uncreated]
    due = min(began, default=0)
    ends = [row.observed_until_micros for row in members]
    observed = max(ends + [pod.observed_until_micros for pod in uncreated], default=0)
    bound = [row.bound_micros for row in members if row.bound_micros is not None]
    complete_at, is_rack_pure, split = _complete_and_pure(members, size)
    until = observed if complete_at is None else complete_at
    return _GangOutcome(
        is_complete=complete_at is not None,
        complete_seconds=(until - due) / 1e6,
        partial_seconds=(until - min(bound)) / 1e6 if bound else None,
        is_rack_pure=is_rack_pure and bool(bound),
        split=split,
        start=_start(members),
    )


def _complete_and_pure(members: Sequence[PodRow], size: int) -> tuple[int | None, bool, bool]:
    """When all planned members were first bound at once, whether one known rack always held all
    bound members, and whether two racks ever did.
    """
    complete_at: int | None = None
    is_rack_pure, split = True, False
    for moment, racks in _moments(members):
        if complete_at is None and racks.total() >= size:
            complete_at = moment
        there = [rack for rack, pods in racks.items() if pods > 0]
        is_rack_pure = is_rack_pure and len(there) <= 1 and "" not in there
        split = split or len(there) > 1
    return complete_at, is_rack_pure, split


def _moments(members: Sequence[PodRow]) -> Iterator[tuple[int, Counter[str]]]:
    """Bound members by rack after each change; at equal times, removals come first."""
    changes: list[tuple[int, int, str]] = []
    for row in members:
        if row.bound_micros is not None:
            changes.append((row.bound_micros, 1, row.rack))
            if row.deleted_micros is not None:
                changes.append((max(row.deleted_micros, row.bound_micros), -1, row.rack))
    racks: Counter[str] = Counter()
    for moment, step, rack in sorted(changes):
        racks[rack] += step
        yield moment, racks


def _start(members: Sequence[PodRow]) -> str:
    bound = [row for row in members if row.bound_micros is not None]
    if not bound:
        return "unplaced"
    return "anchored" if any(row.bound_by == "anchor" for row in bound) else "scheduler-first"
