"""Stability: disturbed pods and unexplained machine changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from loaddriver.judge.active_pods import DemandCurve, completed_micros, mean_running
from loaddriver.judge.cost import HeldSpan, paid_spans
from loaddriver.judge.facts import FleetFacts, RunFacts
from loaddriver.record.journal import Journal, takings
from loaddriver.record.recorder import Observations
from loaddriver.record.removals import Cause, PodRemoval, pod_removals
from loaddriver.record.rows import PodRow
from loaddriver.sizing.fit import offering_of

_YOUNG_MICROS = 600 * 1_000_000
# A pod that has waited for less may still get a machine.
_STAYED_MICROS = 30 * 1_000_000
# A decrease in demand by this part of a machine explains the release of one.
_EXPLAINS = 0.5
_OWNERS = (Cause.LOAD, Cause.CONTROLLER)
_FREE = ("SPECULATIVE", "IDLE")


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
    `released_unexplained` those of them whose cluster's requests had decreased from their peak, by
    the time the machine was taken, by less than half of the machine, which had not failed, and on
    which other pods had run than those of completed Jobs. `additional_requests` counts
    CapacityRequests for an additional machine. `unschedulable_despite_supply` pods never had a node
    and had waited for half a minute, and a machine that fits was available in the end. Null without
    the shards' journals.
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
        else _MachineChanges(facts, facts.fleet, rows, completed, demand, with_stories)
    )
    additional = sum(len(log.additional) for log in logs)
    steady = times.steady
    disrupted = [e for e in ends if _is_disturbed(e, facts.fleet)]
    in_steady = None if steady is None else sum(_within(end.at_micros, steady) for end in disrupted)
    return Stability(
        growing_seconds=_seconds(times.growing),
        disrupted_while_growing=sum(
            _within(end.at_micros, times.growing)
            or (
                _within(end.at_micros, times.ramp)
                and demand.is_highest(end.pod.cluster, end.at_micros)
            )
            for end in disrupted
        ),
        reclaimed_while_growing=None
        if machine_changes is None
        else machine_changes.taken(times.growing),
        steady_seconds=None if steady is None else _seconds(steady),
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
        released_unexplained=None if machine_changes is None else machine_changes.unexplained(),
        additional_requests=additional,
        additional_requests_per1000_pods=round(1000 * additional / len(rows), 3) if rows else None,
        unschedulable_despite_supply=None
        if machine_changes is None
        else machine_changes.unschedulable(),
    )


Time = tuple[int, int]
"""A period (begin, end), in microseconds."""


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


class _MachineChanges:
    """Bought and released machines, from the shards' journals."""

    def __init__(
        self,
        facts: RunFacts,
        fleet: FleetFacts,
        rows: Sequence[PodRow],
        completed: Mapping[str, int],
        demand: DemandCurve,
        journal: Journal,
    ) -> None:
        self._fleet, self._rows, self._journal = fleet, rows, journal
        self._completed, self._demand = completed, demand
        spans = paid_spans(journal, fleet, facts.started_micros)
        self.bought = [span for span in spans if span.begin_micros > facts.started_micros]
        self.released = [
            span
            for span in self.bought
            if span.end_micros is not None and span.end_micros - span.begin_micros <= _YOUNG_MICROS
        ]

    def taken(self, time: Time) -> int:
        """The number of machines that were taken from their cluster."""
        return sum(
            _within(event.at_micros, time)
            for story in self._journal.stories.values()
            for event in takings(story)
        )

    def per_minute(self, time: Time | None) -> float | None:
        """Machines bought per minute."""
        if time is None or time[1] <= time[0]:
            return None
        number = sum(_within(span.begin_micros, time) for span in self.bought)
        return round(number / (_seconds(time) / 60), 3)

    def unexplained(self) -> int:
        """The number of machines released early although demand had hardly decreased."""
        return sum(not self._explained(span) for span in self.released)

    def unschedulable(self) -> int:
        """Pods that were never bound although a machine was available."""
        waited = Counter(
            needs
            for row in self._rows
            if row.bound_micros is None
            and (row.deleted_micros or row.observed_until_micros) - row.created_micros
            >= _STAYED_MICROS
            and (needs := self._fleet.needs.get((row.cluster, row.workload))) is not None
        )
        free = {
            offering_of(machine, self._fleet.daemon_sets)
            for name, machine in self._fleet.machines.items()
            if self._last_state(name, machine.state) in _FREE
        }
        return sum(n for needs, n in waited.items() if any(needs.fits(offer) for offer in free))

    def _last_state(self, name: str, at_first: str) -> str:
        story = self._journal.stories.get(name, ())
        return next((e.reached for e in reversed(story) if e.reached), at_first)

    def _explained(self, span: HeldSpan) -> bool:
        """Whether it failed, its cluster's requests decreased enough in that time, or its own Jobs
        ended.
        """
        assert span.end_micros is not None  # it was released
        cluster = self._served(span)
        story = self._journal.stories.get(span.machine.id, ())
        if any(e.reached == "FAILED" and span.covers(e.at_micros) for e in story):
            return True
        taken = [e.at_micros for e in takings(story) if span.covers(e.at_micros)]
        until = taken[-1] if taken else span.end_micros
        # Other demand of the cluster may grow while the Jobs end that it was bought for.
        if self._served_completed_jobs(span, until):
            return True
        decrease = self._demand.decrease(cluster, span.begin_micros, until)
        return any(
            amount > 0 and decrease.get(name, 0) >= _EXPLAINS * amount
            for name, amount in offering_of(span.machine, self._fleet.daemon_sets).available
        )

    def _served_completed_jobs(self, span: HeldSpan, until_micros: int) -> bool:
        """Whether all pods that had run on it were Jobs', and had completed by then."""
        done = [
            self._completed.get(row.uid)
            for row in self._rows
            if row.node == span.machine.id
            and row.bound_micros is not None
            and span.covers(row.bound_micros)
        ]
        return bool(done) and all(at is not None and at <= until_micros for at in done)

    def _served(self, span: HeldSpan) -> str:
        story = self._journal.stories.get(span.machine.id, ())
        own = (event for event in story if span.covers(event.at_micros))
        return next((name for e in own if (name := e.cluster or e.claimant)), "")


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
    minutes = _seconds(time) / 60
    return round(100 * disrupted / minutes / running, 4) if running and minutes > 0 else None


def _within(at_micros: int, time: Time) -> bool:
    return time[0] <= at_micros < time[1]


def _seconds(time: Time) -> float:
    return (time[1] - time[0]) / 1e6
