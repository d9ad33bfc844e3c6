"""Disruption costs of reclaiming machines, as their clusters' operators report them.

BigFleet watches no pods. Where a cluster may have surplus machines, its operator is asked which of
them can be reclaimed at the least cost; an answer is valid for a few cycles. An operator whose
answers lead to no reclaim is asked less and less often, until demand falls or less runs on a Node
that takes no new pods: one that is drained by hand is soon empty. While a cluster grows nothing
with pods is reclaimed: its operator, for whom an answer is work, is asked as rarely.

A machine whose reclaim an operator has refused must stay until the operator's next report on it, or
for a hold that doubles with each further refusal: each costs a Node a moment of being cordoned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bigfleet.api.v1alpha1 import shard_pb2 as wire

# Machines in one answer.
MAX_MACHINES = 64
# Bounds of the period of inquiries; an answer is valid for 2.5 periods.
_MIN_PERIOD_SECONDS, _MAX_PERIOD_SECONDS = 1.0, 10.0
_VALID_PERIODS = 2.5
_MAX_PERIODS = 16
# An operator is asked again for a machine that it has refused.
_MAX_REFUSAL_SECONDS = 600.0
# A machine whose batch pods have had their wait is reclaimed after all others.
_BATCH_COST = 1e6
# A machine with pods has a positive cost, also where the operator reports none.
_MIN_COST = 1e-3


@dataclass
class _Asked:
    at_seconds: float
    period_seconds: float
    answered: bool = False


@dataclass(frozen=True, slots=True)
class _Report:
    cluster: str
    at_seconds: float
    cost: float


@dataclass(frozen=True, slots=True)
class _Refusal:
    """When the operator refused to reclaim a machine, and for how long it is not asked again;
    `lifted` by a report on it since.
    """

    cluster: str
    at_seconds: float
    hold_seconds: float
    lifted: bool = False

    def is_in_force(self, now_seconds: float, times: int = 1) -> bool:
        """Whether less than its hold, or that many of them, has passed."""
        return now_seconds - self.at_seconds < times * self.hold_seconds


@dataclass(frozen=True, slots=True)
class _BatchPods:
    """Since when a machine is known to run batch pods, and when that was last reported."""

    since_seconds: float
    seen_seconds: float


class DisruptionCosts:
    """The operators' recent answers; times are in Unix seconds."""

    def __init__(
        self, hold_seconds: float, batch_wait_seconds: float, cycle_seconds: float
    ) -> None:
        """A surplus machine is held for `hold_seconds`; one with running batch pods is kept until
        these have had `batch_wait_seconds` to end. Cycles are up to `cycle_seconds` apart: an
        answer must be valid until the next one.
        """
        self._hold_seconds, third = hold_seconds, hold_seconds / 3
        self._period_seconds = min(max(third, _MIN_PERIOD_SECONDS), _MAX_PERIOD_SECONDS)
        self._longest_seconds = self._period_seconds * _MAX_PERIODS
        self._valid_seconds = _VALID_PERIODS * max(self._period_seconds, cycle_seconds)
        self._batch_wait_seconds = batch_wait_seconds
        # Nobody asks less often than that about a machine that stays a candidate.
        self._follow_seconds = self._longest_seconds + self._valid_seconds
        self._asked: dict[str, _Asked] = {}
        self._reports: dict[str, _Report] = {}
        self._refusals: dict[str, _Refusal] = {}
        self._batch: dict[str, _BatchPods] = {}
        #: the machines last found, by cluster
        self._surplus: dict[str, Sequence[str]] = {}
        self._numbers = 0

    def inquiries(
        self,
        candidates: Mapping[str, Sequence[str]],
        surplus: Mapping[str, Sequence[str]],
        fell_seconds: Mapping[str, float],
        growing: Collection[str],
        now_seconds: float,
    ) -> Iterator[tuple[str, wire.DisruptionInquiry]]:
        """The inquiries to send now. `candidates` are the possibly surplus machines by cluster,
        `surplus` those that the last decision found to be where it looked for them, `growing` the
        clusters that need ever more. `fell_seconds` is when a cluster's demand last fell, or what
        its limited Nodes serve.
        """
        known = self._surplus | dict(surplus)
        self._surplus = {cluster: known[cluster] for cluster in candidates if cluster in known}
        for cluster, machine_ids in candidates.items():
            asked, period = self._asked.get(cluster), self._period_seconds
            if asked is not None:
                self._adapt(asked, fell_seconds.get(cluster), surplus.get(cluster))
                period = asked.period_seconds
                wait_seconds = self._longest_seconds if cluster in growing else period
                if now_seconds - asked.at_seconds < wait_seconds:
                    continue
            self._asked[cluster] = _Asked(now_seconds, period)
            self._numbers += 1
            yield (
                cluster,
                wire.DisruptionInquiry(
                    inquiry_id=f"disruption-{self._numbers}",
                    machine_ids=machine_ids,
                    max_machines=MAX_MACHINES,
                    surplus_machine_ids=self._surplus.get(cluster, ()),
                ),
            )

    def _adapt(
        self, asked: _Asked, fell_seconds: float | None, surplus: Sequence[str] | None
    ) -> None:
        if surplus or (fell_seconds is not None and fell_seconds >= asked.at_seconds):
            asked.period_seconds = self._period_seconds
        elif asked.answered and surplus is not None:
            asked.period_seconds = min(asked.period_seconds * 2, self._longest_seconds)
            asked.answered = False

    def take(
        self,
        cluster: str,
        report: wire.DisruptionReport,
        now_seconds: float,
        is_its: Callable[[str], bool],
    ) -> None:
        """Replace the operator's previous answer; machines are ignored unless `is_its` confirms
        that they are in its cluster.
        """
        self.forget(cluster)
        for machine in report.machines[:MAX_MACHINES]:
            if not is_its(machine.machine_id):
                continue
            if (refusal := self._refusals.get(machine.machine_id)) is not None:
                self._refusals[machine.machine_id] = replace(refusal, lifted=True)
            waited = self._batch_pods_waited(machine, now_seconds)
            self._reports[machine.machine_id] = _Report(
                cluster, now_seconds, _cost(machine, waited=waited)
            )
        if cluster in self._asked:
            self._asked[cluster].answered = True

    def _batch_pods_waited(self, machine: wire.MachineDisruption, now_seconds: float) -> bool:
        """Whether the machine's batch pods, if it has any, have had their time to end."""
        before = self._batch.pop(machine.machine_id, None)
        if not machine.batch_pods:
            return True
        since = now_seconds
        # Those of a machine that was not asked about meanwhile may be others.
        if before is not None and now_seconds - before.seen_seconds <= self._follow_seconds:
            since = before.since_seconds
        self._batch[machine.machine_id] = _BatchPods(since, now_seconds)
        return now_seconds - since >= self._batch_wait_seconds

    def forget(self, cluster: str) -> None:
        """Drop the answer of the cluster's operator."""
        self._reports = {m: r for m, r in self._reports.items() if r.cluster != cluster}

    def refused(self, machine_id: str, cluster: str, now_seconds: float) -> None:
        """Record that the operator refused to reclaim a machine."""
        before, hold_seconds = self._refusals.get(machine_id), self._valid_seconds
        # The second half is for the order, and for its answer.
        if before is not None and before.cluster == cluster and before.is_in_force(now_seconds, 2):
            hold_seconds = min(2 * before.hold_seconds, _MAX_REFUSAL_SECONDS)
        self._reports.pop(machine_id, None)
        self._refusals[machine_id] = _Refusal(cluster, now_seconds, hold_seconds)

    def accepted(self, machine_id: str) -> None:
        """Record that the operator reclaims the machine: once it is back, others run there."""
        self._refusals.pop(machine_id, None)

    def known(
        self, now_seconds: float, joined_since: Callable[[float], Collection[str]]
    ) -> dict[str, float]:
        """All valid costs by machine id, except of those that have joined their clusters within the
        hold: kube-scheduler may be about to use them.
        """
        oldest = now_seconds - self._valid_seconds
        self._reports = {m: r for m, r in self._reports.items() if r.at_seconds >= oldest}
        if len(self._batch) > 100 * MAX_MACHINES:
            followed = now_seconds - self._follow_seconds
            self._batch = {m: b for m, b in self._batch.items() if b.seen_seconds >= followed}
        self._refusals = {m: r for m, r in self._refusals.items() if r.is_in_force(now_seconds, 2)}
        joined = joined_since(now_seconds - self._hold_seconds)
        kept = (m for m, r in self._refusals.items() if r.is_in_force(now_seconds) and not r.lifted)
        costs = dict.fromkeys(kept, math.inf)
        return costs | {m: r.cost for m, r in self._reports.items() if m not in joined}


def _cost(machine: wire.MachineDisruption, *, waited: bool) -> float:
    if machine.blocked or not math.isfinite(machine.cost):
        return math.inf
    if machine.batch_pods:
        return _BATCH_COST + max(0.0, machine.cost) if waited else math.inf
    return max(_MIN_COST, machine.cost) if machine.pods else 0.0
