"""Machines that an autoscaler bought and released, and whether demand explains it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from loaddriver.judge.active_pods import DemandCurve
from loaddriver.judge.cost import HeldSpan, paid_spans
from loaddriver.judge.facts import FleetFacts, RunFacts
from loaddriver.record.journal import Journal, takings
from loaddriver.record.rows import PodRow
from loaddriver.sizing.fit import offering_of

Time = tuple[int, int]
"""A period (begin, end), in microseconds."""

_YOUNG_MICROS = 600 * 1_000_000
# A pod that has waited for less may still get a machine.
_STAYED_MICROS = 30 * 1_000_000
# A decrease in demand by this part of a machine explains the release of one.
_EXPLAINS = 0.5
_FREE = ("SPECULATIVE", "IDLE")


class MachineChanges:
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
            within(event.at_micros, time)
            for story in self._journal.stories.values()
            for event in takings(story)
        )

    def per_minute(self, time: Time | None) -> float | None:
        """Machines bought per minute."""
        if time is None or time[1] <= time[0]:
            return None
        number = sum(within(span.begin_micros, time) for span in self.bought)
        return round(number / (seconds_of(time) / 60), 3)

    def unexplained(self) -> int:
        """The number of machines released early although demand had hardly decreased."""
        return sum(not self._explained(each) for each in self.released)

    def unused(self) -> int:
        """The number of machines released early on which no pod has run."""
        return sum(not self._pods_on(span) for span in self.released)

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
        """Whether it failed, demand for such machines decreased enough in that time, or its own
        Jobs ended.
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
        offering = offering_of(span.machine, self._fleet.daemon_sets)
        decrease = self._demand.decrease(cluster, span.begin_micros, until, offering)
        return any(
            amount > 0 and decrease.get(name, 0) >= _EXPLAINS * amount
            for name, amount in offering.available
        )

    def _served_completed_jobs(self, span: HeldSpan, until_micros: int) -> bool:
        """Whether all pods that had run on it were Jobs', and had completed by then."""
        done = [self._completed.get(row.uid) for row in self._pods_on(span)]
        return bool(done) and all(at is not None and at <= until_micros for at in done)

    def _pods_on(self, span: HeldSpan) -> list[PodRow]:
        """The pods that were bound to the machine in that time."""
        return [
            row
            for row in self._rows
            if row.node == span.machine.id
            and row.bound_micros is not None
            and span.covers(row.bound_micros)
        ]

    def _served(self, span: HeldSpan) -> str:
        """The first cluster that it served; of one that served none, that for which it was bought.

        "" if no journal tells.
        """
        story = self._journal.stories.get(span.machine.id, ())
        own = (e for e in story if span.covers(e.at_micros))
        ordered = [e for e in story if e.at_micros < span.begin_micros][-1:]
        return next((name for e in (*own, *ordered) if (name := e.cluster or e.claimant)), "")


def within(at_micros: int, time: Time) -> bool:
    """Whether a time is in a period."""
    return time[0] <= at_micros < time[1]


def seconds_of(time: Time) -> float:
    """The length of a period."""
    return (time[1] - time[0]) / 1e6
