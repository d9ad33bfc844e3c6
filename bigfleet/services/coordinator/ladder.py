"""Which domains move to shards that lack machines. Pure.

| Rung        | A domain moves because of its           | to a shard whose shortfall is older than |
|-------------|-----------------------------------------|------------------------------------------|
| idle        | idle machines                           | 5 cycles                                 |
| speculative | speculative ones, if no idle ones help  | 10 cycles                                |

Shards report their shortfalls with the domains of others that would help. The most urgent shortfall
chooses first: of the domains that hold all its pods the smallest, else those that hold most, until
all its pods have a place. Of a need confined to one domain, one domain moves. Nothing else ever
moves a domain, so a fleet without shortfalls is at rest.

A domain that has moved stays for a while, and after a move its shortfall waits until the new
machines could serve it. Few domains move at the same time, and each donor keeps some of its free
machines. Machines in use stay with their cluster, and so with the donor, until they are free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeVar

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.services.coordinator.domain_lifecycle import DomainState
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Domain, DomainName

_Key = TypeVar("_Key")

# A domain does not move again for so long.
COOLDOWN_SECONDS = 300.0
# Two reports until its new shard has it, and some decisions and reports after that.
SETTLING_SECONDS = 15.0
# At most this share of all domains moves at the same time; at least one.
MOVING_SHARE = 0.05
# A donor keeps this share of its machines free, rounded down.
DONOR_MARGIN = 0.05


class Rung(Enum):
    """What a domain moves for; the values are used in reasons and metrics."""

    IDLE = "idle"
    SPECULATIVE = "speculative"


# A shortfall must be older than this many cycles: younger ones often end by themselves.
AGE_CYCLES: Mapping[Rung, int] = {Rung.IDLE: 5, Rung.SPECULATIVE: 10}


class DomainMove(NamedTuple):
    """A domain to transfer to the shard `to`."""

    name: DomainName
    to: str
    rung: Rung
    reason: str


class _Need(NamedTuple):
    """Identifies what is short: a profile of a cluster, of the shard that serves it."""

    shard: str
    cluster: str
    fingerprint: str


@dataclass
class LadderMemory:
    """What one leader ordered, by its monotonic clock. A new leader begins without it."""

    moved_at: dict[DomainName, float] = field(default_factory=dict)
    helped_at: dict[_Need, float] = field(default_factory=dict)

    def note(self, choice: Choice, now_seconds: float) -> None:
        """Record moves that are ordered now; forget what no longer matters."""
        self.moved_at = _within(self.moved_at, now_seconds - COOLDOWN_SECONDS)
        self.helped_at = _within(self.helped_at, now_seconds - SETTLING_SECONDS)
        self.moved_at |= {move.name: now_seconds for move in choice.moves}
        self.helped_at |= dict.fromkeys(choice.needs, now_seconds)


class Choice(NamedTuple):
    """The moves that are due, and for which needs."""

    moves: Sequence[DomainMove]
    needs: Sequence[_Need]


def choose(
    registry: Registry,
    reports: Sequence[wire.ShardReportSnapshot],
    memory: LadderMemory,
    now_seconds: float,
) -> Choice:
    """The domains to move now, from the `reports` of all live shards that are not leaving."""
    chooser = _Chooser(registry, reports, memory, now_seconds)
    short = [(report.shard_id, each) for report in reports for each in report.shortfalls]
    short.sort(key=lambda found: _urgency(*found))
    needs = [need for need in (chooser.serve(*found) for found in short) if need is not None]
    return Choice(chooser.moves, needs)


def _urgency(shard: str, short: wire.Shortfall) -> tuple[int, int, str, str, str]:
    return -short.priority, -short.age_cycles, shard, short.cluster_id, short.profile_fingerprint


class _Chooser:
    def __init__(
        self,
        registry: Registry,
        reports: Sequence[wire.ShardReportSnapshot],
        memory: LadderMemory,
        now_seconds: float,
    ) -> None:
        self.moves: list[DomainMove] = []
        self._registry, self._memory, self._now_seconds = registry, memory, now_seconds
        self._spare = {report.shard_id: _spare(report.summary) for report in reports}
        moving = sum(row.state is not DomainState.OWNED for row in registry.domains.values())
        self._may_move = max(1, int(MOVING_SHARE * len(registry.domains))) - moving
        self._taken: set[DomainName] = set()

    def serve(self, shard: str, short: wire.Shortfall) -> _Need | None:
        """Choose domains for a shortfall; returns its need if there are any."""
        need = _Need(shard, short.cluster_id, short.profile_fingerprint)
        helped_at = self._memory.helped_at.get(need)
        if helped_at is not None and self._now_seconds - helped_at < SETTLING_SECONDS:
            return None
        for rung, age_cycles in AGE_CYCLES.items():
            if short.age_cycles > age_cycles and self._serve_by(rung, shard, short):
                return need
        return None

    def _serve_by(self, rung: Rung, shard: str, short: wire.Shortfall) -> bool:
        pods, before = short.count, len(self.moves)
        while pods > 0 and self._may_move > 0:
            found = list(self._candidates(rung, shard, short))
            if not found:
                break
            best = min(found, key=lambda each: _preference(each, rung, pods))
            pods = 0 if short.same_domain else pods - _pods(best, rung)
            self._move(rung, best, shard, short)
        return len(self.moves) > before

    def _candidates(
        self, rung: Rung, shard: str, short: wire.Shortfall
    ) -> Iterator[wire.HelpfulDomain]:
        for each in short.helpful_domains:
            row = self._registry.domains.get(_name(each))
            if row is not None and _pods(each, rung) and self._may_give(row, each, shard):
                yield each

    def _may_give(self, row: Domain, helpful: wire.HelpfulDomain, to: str) -> bool:
        moved_at = self._memory.moved_at.get(row.name)
        return (
            row.state is DomainState.OWNED
            and row.shard != to
            and row.name not in self._taken
            and (moved_at is None or self._now_seconds - moved_at >= COOLDOWN_SECONDS)
            # Without a report a donor may be unable to release anything.
            and self._spare.get(row.shard, -1) >= helpful.free_machines
        )

    def _move(
        self, rung: Rung, helpful: wire.HelpfulDomain, to: str, short: wire.Shortfall
    ) -> None:
        name = _name(helpful)
        donor = self._registry.domains[name].shard
        self._taken.add(name)
        self._may_move -= 1
        self._spare[donor] -= helpful.free_machines
        reason = (
            f"cluster {short.cluster_id} of shard {to} lacked machines for {short.count} pods of "
            f"priority {short.priority} for {short.age_cycles} cycles; shard {donor} had "
            f"{_machines(helpful, rung)} {rung.value} ones here that serve {_pods(helpful, rung)}"
        )
        self.moves.append(DomainMove(name, to, rung, reason))


def _name(helpful: wire.HelpfulDomain) -> DomainName:
    return helpful.topology_key, helpful.topology_value


def _pods(helpful: wire.HelpfulDomain, rung: Rung) -> int:
    return helpful.idle_pods if rung is Rung.IDLE else helpful.free_pods


def _machines(helpful: wire.HelpfulDomain, rung: Rung) -> int:
    return helpful.idle_machines if rung is Rung.IDLE else helpful.free_machines


def _preference(helpful: wire.HelpfulDomain, rung: Rung, pods: int) -> tuple[bool, int, DomainName]:
    """The smallest that holds all `pods` before the largest that does not."""
    holds = _pods(helpful, rung)
    return (holds < pods, holds if holds >= pods else -holds, _name(helpful))


def _spare(summary: wire.ShardSummary) -> int:
    free = summary.free_machines + summary.speculative_machines
    return free - int(DONOR_MARGIN * summary.total_machines)


def _within(times: Mapping[_Key, float], since_seconds: float) -> dict[_Key, float]:
    return {key: at for key, at in times.items() if at > since_seconds}
