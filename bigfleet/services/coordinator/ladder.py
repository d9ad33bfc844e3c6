"""Which domains move to shards that lack machines. Pure.

| Rung        | A domain moves because of its           | to a shard whose shortfall is older than |
|-------------|-----------------------------------------|------------------------------------------|
| idle        | idle machines                           | 5 cycles                                 |
| speculative | speculative ones, if no idle ones help  | 10 cycles                                |
| drain       | machines in use by lower priorities     | 20 cycles                                |

Shards report their shortfalls with the domains of others that would help. The most urgent shortfall
chooses first: of the domains that hold all its pods the smallest, else those that hold most, until
all its pods have a place. Of a need confined to one domain, one domain moves.

A domain that has moved stays for a while, and after a move its shortfall waits until the new
machines could serve it. Few domains move at the same time, and each donor keeps some of its free
machines. Machines in use stay with their cluster, and so with the donor, until they are free; the
last rung has the donor drain as many as are needed, if their pods have a lower priority. A donor
that finds a higher one there refuses, and nothing moves.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.report_limits import DRAIN_AGE_CYCLES
from bigfleet.services.coordinator.domain_moves import (
    Cause,
    DomainMove,
    MoveMemory,
    ShortNeed,
    moves_allowed,
    urgency,
)
from bigfleet.services.coordinator.domains import Drain
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Domain, DomainName

# A donor keeps this share of its machines free, rounded down.
DONOR_MARGIN = 0.05
# A shortfall must be older than this many cycles: younger ones often end by themselves.
AGE_CYCLES: Mapping[Cause, int] = {
    Cause.IDLE: 5,
    Cause.SPECULATIVE: 10,
    Cause.DRAIN: DRAIN_AGE_CYCLES,
}
_LEAST_AGE_CYCLES = min(AGE_CYCLES.values())
# Of a donor's machines, at most this share is drained for others within the cooldown; at least one.
DRAINED_SHARE = 0.25
# Nothing else is served while these are looked at; leadership moves after half a second.
MAX_CONSIDERED = 500

_Short = tuple[str, wire.Shortfall]


class Choice(NamedTuple):
    """The moves that are due, and for which needs; `considered` are those that were looked at if
    there were too many to look at all.
    """

    moves: Sequence[DomainMove]
    needs: Sequence[ShortNeed]
    considered: Sequence[ShortNeed] = ()


def choose(
    registry: Registry,
    reports: Sequence[wire.ShardReportSnapshot],
    memory: MoveMemory,
    now_seconds: float,
) -> Choice:
    """The domains to move now, from the `reports` of all live shards that are not leaving."""
    chooser = _Chooser(registry, reports, memory, now_seconds)
    short = [
        (report.shard_id, each)
        for report in reports
        for each in report.shortfalls
        if each.helpful_domains and each.age_cycles > _LEAST_AGE_CYCLES
    ]
    due = _in_turn(short, memory)
    due.sort(key=lambda found: urgency(*found))
    needs = [need for need in (chooser.serve(*found) for found in due) if need is not None]
    considered = [_need(*found) for found in due] if len(due) < len(short) else []
    return Choice(chooser.moves, needs, considered)


def _in_turn(short: list[_Short], memory: MoveMemory) -> list[_Short]:
    """All, or as many as can be looked at now: those whose last turn is longest ago, and among
    these the most urgent ones.
    """
    if len(short) <= MAX_CONSIDERED:
        return short

    def turn(found: _Short) -> tuple[float, tuple[int, int, str, str, str]]:
        return memory.considered_at.get(_need(*found), 0.0), urgency(*found)

    return heapq.nsmallest(MAX_CONSIDERED, short, key=turn)


def _need(shard: str, short: wire.Shortfall) -> ShortNeed:
    return ShortNeed(shard, short.cluster_id, short.profile_fingerprint)


class _Chooser:
    def __init__(
        self,
        registry: Registry,
        reports: Sequence[wire.ShardReportSnapshot],
        memory: MoveMemory,
        now_seconds: float,
    ) -> None:
        self.moves: list[DomainMove] = []
        self._registry, self._memory, self._now_seconds = registry, memory, now_seconds
        self._spare = {report.shard_id: _spare(report.summary) for report in reports}
        self._machines = {each.shard_id: each.summary.total_machines for each in reports}
        self._may_move = moves_allowed(registry, self._spare)
        self._taken: set[DomainName] = set()
        self._drained: Counter[str] = Counter()
        self._drained_for = {row.to for row in registry.unfinished_domains() if row.drained}

    def serve(self, shard: str, short: wire.Shortfall) -> ShortNeed | None:
        """Choose domains for a shortfall; returns its need if there are any."""
        need = _need(shard, short)
        if self._memory.was_helped(need, self._now_seconds):
            return None
        for cause, age_cycles in AGE_CYCLES.items():
            if short.age_cycles > age_cycles and self._serve_by(cause, shard, short):
                return need
        return None

    def _serve_by(self, cause: Cause, shard: str, short: wire.Shortfall) -> bool:
        if cause is Cause.DRAIN:
            return self._drain(shard, short)
        pods, before = short.count, len(self.moves)
        while pods > 0 and self._may_move > 0:
            found = list(self._candidates(cause, shard, short))
            if not found:
                break
            best = min(found, key=lambda each: _preference(each, cause, pods))
            pods = 0 if short.same_domain else pods - _pods(best, cause)
            self._move(cause, best, shard, short)
        return len(self.moves) > before

    def _drain(self, shard: str, short: wire.Shortfall) -> bool:
        """One domain after the other: what is being drained may be enough."""
        if shard in self._drained_for or self._may_move <= 0:
            return False
        found = [each for each in short.helpful_domains if self._may_drain(each, shard, short)]
        if not found:
            return False
        best = min(found, key=lambda each: _drain_preference(each, short.count))
        donor = self._registry.domains[_name(best)].shard
        drain = Drain(tuple(best.drained_machine_ids[: self._drainable(donor)]), short.priority)
        reason = (
            f"cluster {short.cluster_id} of shard {shard} lacked machines for {short.count} pods "
            f"of priority {short.priority} for {short.age_cycles} cycles; no free ones served "
            f"them, and shard {donor} used {len(drain.machine_ids)} here for priority "
            f"{best.drained_priority} or less"
        )
        self._taken.add(_name(best))
        self._may_move -= 1
        self._drained[donor] += len(drain.machine_ids)
        self._drained_for.add(shard)
        self.moves.append(DomainMove(_name(best), shard, Cause.DRAIN, reason, drain))
        return True

    def _may_drain(self, helpful: wire.HelpfulDomain, to: str, short: wire.Shortfall) -> bool:
        row = self._registry.domains.get(_name(helpful))
        machines = len(helpful.drained_machine_ids)
        if row is None or not machines or helpful.drained_priority >= short.priority:
            return False
        most = self._drainable(row.shard)
        is_enough = most >= machines if short.same_domain else most > 0
        # What is in use is not free: a donor without a free machine can drain as well as any.
        return is_enough and self._may_leave(row, to)

    def _drainable(self, donor: str) -> int:
        most = max(1, int(DRAINED_SHARE * self._machines.get(donor, 0)))
        return most - self._memory.drained(donor, self._now_seconds) - self._drained[donor]

    def _candidates(
        self, cause: Cause, shard: str, short: wire.Shortfall
    ) -> Iterator[wire.HelpfulDomain]:
        for each in short.helpful_domains:
            row = self._registry.domains.get(_name(each))
            if row is not None and _pods(each, cause) and self._may_give(row, each, shard):
                yield each

    def _may_give(self, row: Domain, helpful: wire.HelpfulDomain, to: str) -> bool:
        return self._may_leave(row, to) and self._spare[row.shard] >= helpful.free_machines

    def _may_leave(self, row: Domain, to: str) -> bool:
        return (
            row.shard != to
            and row.name not in self._taken
            and self._memory.may_move(row, self._now_seconds)
            # Without a report a donor may be unable to release anything.
            and row.shard in self._spare
        )

    def _move(
        self, cause: Cause, helpful: wire.HelpfulDomain, to: str, short: wire.Shortfall
    ) -> None:
        name = _name(helpful)
        donor = self._registry.domains[name].shard
        self._taken.add(name)
        self._may_move -= 1
        self._spare[donor] -= helpful.free_machines
        reason = (
            f"cluster {short.cluster_id} of shard {to} lacked machines for {short.count} pods of "
            f"priority {short.priority} for {short.age_cycles} cycles; shard {donor} had "
            f"{_machines(helpful, cause)} {cause.value} ones here that serve "
            f"{_pods(helpful, cause)}"
        )
        self.moves.append(DomainMove(name, to, cause, reason))


def _name(helpful: wire.HelpfulDomain) -> DomainName:
    return helpful.topology_key, helpful.topology_value


def _pods(helpful: wire.HelpfulDomain, cause: Cause) -> int:
    return helpful.idle_pods if cause is Cause.IDLE else helpful.free_pods


def _machines(helpful: wire.HelpfulDomain, cause: Cause) -> int:
    return helpful.idle_machines if cause is Cause.IDLE else helpful.free_machines


def _preference(
    helpful: wire.HelpfulDomain, cause: Cause, pods: int
) -> tuple[bool, int, DomainName]:
    """The smallest that holds all `pods` before the largest that does not."""
    holds = _pods(helpful, cause)
    return (holds < pods, holds if holds >= pods else -holds, _name(helpful))


def _drain_preference(helpful: wire.HelpfulDomain, pods: int) -> tuple[bool, int, int, DomainName]:
    """One that holds all `pods`, and there the fewest machines, of the lowest priority."""
    machines = len(helpful.drained_machine_ids)
    return helpful.drained_pods < pods, machines, helpful.drained_priority, _name(helpful)


def _spare(summary: wire.ShardSummary) -> int:
    free = summary.free_machines + summary.speculative_machines
    return free - int(DONOR_MARGIN * summary.total_machines)
