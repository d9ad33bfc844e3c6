"""Pods removed from their nodes, by cause and disruption budget; preempted machines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from loaddriver.record.journal import Journal
from loaddriver.record.recorder import Observations
from loaddriver.record.removals import Cause, PodRemoval, pod_removals
from loaddriver.record.rows import PodRow

BudgetKey = tuple[str, str]
"""Cluster and workload."""


class Budgets(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """PodDisruptionBudgets of the load whose workloads keep their size.

    `breached` counts budgets with fewer bound pods than required right after a disruption;
    `min_surplus` is the smallest surplus of bound pods over any budget, null without a disruption.
    Bound pods are at least as many as healthy ones, so a breach is certain; the API server
    enforces budgets by healthy pods.
    """

    count: int
    touched: int
    breached: int
    min_surplus: int | None


class Disruptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Removals of bound pods, from the audit logs.

    `evictions` succeeded, `refused` were rejected by a disruption budget. `evicted_twice` counts
    pods with more than one successful eviction. `removed` counts pods by cause, `archetypes` by
    archetype and cause. `preemptions` counts decisions to take a machine from a need of lower
    priority, by grace period (such as `grace30s`), null without a journal; `machines_preempted`
    counts those machines.
    """

    evictions: int
    refused: int
    evicted_twice: int
    removed: dict[str, int]
    archetypes: dict[str, dict[str, int]]
    budgets: Budgets
    preemptions: dict[str, int] | None
    machines_preempted: int | None


def disruptions_section(
    observed: Sequence[Observations],
    rows: Sequence[PodRow],
    journal: Journal | None,
    floors: Mapping[BudgetKey, int],
) -> Disruptions | None:
    """The section; None if any API server has no audit log that the harness can read."""
    logs = [each.audit for each in observed if each.audit is not None]
    if len(logs) < len(observed):
        return None
    ends = pod_removals(observed, rows)
    bound = [end for end in ends if end.pod.bound_micros is not None]
    by_archetype: defaultdict[str, list[PodRemoval]] = defaultdict(list)
    for end in bound:
        by_archetype[end.pod.archetype].append(end)
    taken = None if journal is None else _preemptions(journal)
    return Disruptions(
        evictions=sum(end.evictions for end in ends),
        refused=sum(log.failed["create pods/eviction 429"] for log in logs),
        evicted_twice=sum(end.evictions > 1 for end in ends),
        removed=_by_cause(bound),
        archetypes={
            name: _by_cause(by_archetype[name]) for name in sorted({row.archetype for row in rows})
        },
        budgets=_budgets(rows, ends, floors),
        preemptions=None if taken is None else dict(sorted(taken[0].items())),
        machines_preempted=None if taken is None else taken[1],
    )


def _by_cause(ends: Iterable[PodRemoval]) -> dict[str, int]:
    counts = Counter(end.cause for end in ends)
    return {cause.value: counts[cause] for cause in Cause}


def _preemptions(journal: Journal) -> tuple[Counter[str], int]:
    graces: Counter[str] = Counter()
    machines = set()
    for machine, story in journal.stories.items():
        for event in story:
            if event.preempts:
                graces["unknown" if event.grace is None else f"grace{event.grace:g}s"] += 1
                machines.add(machine)
    return graces, len(machines)


def _budgets(
    rows: Sequence[PodRow], ends: Sequence[PodRemoval], floors: Mapping[BudgetKey, int]
) -> Budgets:
    pods: defaultdict[BudgetKey, list[PodRow]] = defaultdict(list)
    for row in rows:
        pods[row.cluster, row.workload].append(row)
    removed = {end.pod.uid: end for end in ends}
    surplus = {
        key: left - floor
        for key, floor in floors.items()
        if (left := _fewest_left(pods[key], removed)) is not None
    }
    return Budgets(
        count=len(floors),
        touched=len(surplus),
        breached=sum(over < 0 for over in surplus.values()),
        min_surplus=min(surplus.values(), default=None),
    )


def _fewest_left(pods: Sequence[PodRow], removed: Mapping[str, PodRemoval]) -> int | None:
    """The fewest bound pods right after a disruption of one of them; None if there was none."""
    changes: list[tuple[int, int, bool]] = []
    for pod in pods:
        if pod.bound_micros is None:
            continue
        changes.append((pod.bound_micros, 1, False))
        end = removed.get(pod.uid)
        if end is not None:
            changes.append((max(end.at_micros, pod.bound_micros), -1, end.cause.is_disruption))
    left, fewest = 0, None
    for _, change, is_disruption in sorted(changes):
        left += change
        if is_disruption:
            fewest = left if fewest is None else min(fewest, left)
    return fewest
