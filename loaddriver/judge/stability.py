"""Stability: disturbed pods and unexplained machine changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from loaddriver.judge.active_pods import DemandCurve, completed_micros, mean_running
from loaddriver.judge.facts import FleetFacts, RunFacts
from loaddriver.judge.machine_changes import MachineChanges, Time, seconds_of, within
from loaddriver.record.journal import Journal
from loaddriver.record.recorder import Observations
from loaddriver.record.removals import Cause, PodRemoval, pod_removals
from loaddriver.record.rows import PodRow

_OWNERS = (Cause.LOAD, Cause.CONTROLLER)


class Stability(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Disturbed pods are bound pods that were evicted, lost with their Node or removed by an
    unknown client. Those that kube-scheduler preempted are counted as `preempted`.

    Demand only grows for `growing_seconds`, until the first bound pod is removed by its owner or
    completes; `reclaimed_while_growing` counts machines that were taken from their cluster in that
    time, without those that its operator refused to drain. `disrupted_while_growing` includes the
    pods of the rest of the ramp whose cluster requested about as much as ever before. The soak is
    steady for `steady_seconds`, until the plan reduces its demand; `disrupted_per_minute_percent`
    is of the pods that ran in that time. `job_pods_interrupted` counts disturbed pods that had not
    completed.

    Machines are bought when they are created; the rate is that of the steady time.
    `released_within10_minutes` counts machines deleted so soon after they were bought;
    `released_unused` those of them on which no pod has run; `released_unexplained` those that had
    not failed, on which other pods had run than those of completed Jobs, or none, and for which
    requests had decreased from their peak, by the time the machine was taken, by less than half of
    the machine: requests of those pods of its cluster that its labels, taints and resources allow.
    `additional_requests` counts CapacityRequests for an additional machine.
    `unschedulable_despite_supply` pods never had a node and had waited for half a minute, and a
    machine that fits was available in the end. Null without the shards' journals.
    """

    growing_seconds: float
    disrupted_while_growing: int
    reclaimed_while_growing: int | None
    steady_seconds: float | None
    disrupted_while_steady: int | None
    disrupted_per_minute_percent: float | None
    disrupted: int
    preempted: int
    job_pods_interrupted: int
    bought: int | None
    bought_per_minute: float | None
    released_within10_minutes: int | None
    released_unused: int | None = None  # not in summaries of earlier releases
    released_unexplained: int | None
    additional_requests: int
    additional_requests_per1000_pods: float | None
    unschedulable_despite_supply: int | None


def stability_section(
    facts: RunFacts,
    observed: Sequence[Observations],
    rows: Sequence[PodRow],
    journal: Journal | None,
) -> Stability | None:
    """The section; None if the fleet is unknown or an API server's audit log is missing."""
    logs = [each.audit for each in observed if each.audit is not None]
    if facts.fleet is None or len(logs) < len(observed):
        return None
    ends = [e for e in pod_removals(observed, rows) if e.pod.bound_micros is not None]
    completed = _completed(rows, ends, facts.fleet)
    times = _Times.of(facts, rows, ends, completed.values())
    demand = DemandCurve(rows, facts.fleet)
    with_stories = journal if journal is not None and journal.stories else None
    machine_changes = (
        None
        if with_stories is None
        else MachineChanges(facts, facts.fleet, rows, completed, demand, with_stories)
    )
    additional, steady = sum(len(log.additional) for log in logs), times.steady
    disrupted = [e for e in ends if _is_disturbed(e, facts.fleet)]
    in_steady = None if steady is None else sum(within(end.at_micros, steady) for end in disrupted)
    return Stability(
        growing_seconds=seconds_of(times.growing),
        disrupted_while_growing=sum(
            within(end.at_micros, times.growing)
            or (
                within(end.at_micros, times.ramp)
                and demand.is_highest(end.pod.cluster, end.at_micros)
            )
            for end in disrupted
        ),
        reclaimed_while_growing=None
        if machine_changes is None
        else machine_changes.taken(times.growing),
        steady_seconds=None if steady is None else seconds_of(steady),
        disrupted_while_steady=in_steady,
        disrupted_per_minute_percent=_percent(in_steady, steady, rows, facts.fleet),
        disrupted=len(disrupted),
        preempted=sum(end.cause is Cause.PREEMPTED for end in ends),
        job_pods_interrupted=sum(_interrupted(end, facts.fleet) for end in disrupted),
        bought=None if machine_changes is None else len(machine_changes.bought),
        bought_per_minute=None if machine_changes is None else machine_changes.per_minute(steady),
        released_within10_minutes=None
        if machine_changes is None
        else len(machine_changes.released),
        released_unused=None if machine_changes is None else machine_changes.unused(),
        released_unexplained=None if machine_changes is None else machine_changes.unexplained(),
        additional_requests=additional,
        additional_requests_per1000_pods=round(1000 * additional / len(rows), 3) if rows else None,
        unschedulable_despite_supply=None
        if machine_changes is None
        else machine_changes.unschedulable(),
    )


@dataclass(frozen=True)
class _Times:
    growing: Time
    ramp: Time
    steady: Time | None

    @staticmethod
    def of(
        facts: RunFacts,
        rows: Sequence[PodRow],
        ends: Sequence[PodRemoval],
        completed_at: Iterable[int],
    ) -> _Times:
        first = min((row.created_micros for row in rows), default=facts.started_micros)
        removed_at = (end.at_micros for end in ends if end.cause in _OWNERS)
        last = min([facts.ended_micros, *removed_at, *completed_at])
        soak_started = facts.soak_started_micros
        shrinks_at = facts.fleet.shrinks_at_micros if facts.fleet else None
        until = facts.ended_micros if shrinks_at is None else shrinks_at
        return _Times(
            growing=(first, max(first, last)),
            ramp=(first, facts.ended_micros if soak_started is None else soak_started),
            steady=None if soak_started is None else (soak_started, until),
        )


def _completed(
    rows: Sequence[PodRow], ends: Sequence[PodRemoval], fleet: FleetFacts
) -> dict[str, int]:
    """When each Job's pod completed, by UID; pods that were removed before have not."""
    interrupted = {end.pod.uid for end in ends if _interrupted(end, fleet)}
    done = ((r.uid, completed_micros(r, fleet.run_seconds)) for r in rows)
    return {uid: at for uid, at in done if at is not None and uid not in interrupted}


def _is_disturbed(end: PodRemoval, fleet: FleetFacts) -> bool:
    """Whether the pod ran, and its owner did not want it to end. What is left of a Job's pod that
    has completed is removed with its Node.
    """
    done = completed_micros(end.pod, fleet.run_seconds)
    ran = done is None or end.at_micros < done
    return ran and end.cause.is_disruption and end.cause is not Cause.PREEMPTED


def _interrupted(end: PodRemoval, fleet: FleetFacts) -> bool:
    done = completed_micros(end.pod, fleet.run_seconds)
    return done is not None and end.at_micros < done


def _percent(
    disrupted: int | None, time: Time | None, rows: Sequence[PodRow], fleet: FleetFacts
) -> float | None:
    if disrupted is None or time is None:
        return None
    running = mean_running(rows, *time, fleet)
    minutes = seconds_of(time) / 60
    return round(100 * disrupted / minutes / running, 4) if running and minutes > 0 else None
