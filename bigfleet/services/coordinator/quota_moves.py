"""Which parts of a quota move to shards that lack them. Pure.

A shard whose part is used up, and whose clusters therefore lack machines for more than ten
cycles, gets part of what others do not use. The most urgent shortfall chooses first, and takes from
those with most to spare. What a removed shard had is there for whoever needs it. A shard that a
quota does not name, since it joined later, gets its even part as far as others do not use theirs.

A giver keeps a margin, and gives nothing for a while after it was given something. After a move its
shortfall waits until the new part could have been used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.services.coordinator.domain_moves import MoveMemory, ShortNeed, urgency
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Quota, QuotaName

# A shortfall must be older than this many cycles, as for speculative machines of others.
AGE_CYCLES = 10
# A giver keeps this share of its part unused, rounded up.
MARGIN = 0.05


_Use: TypeAlias = tuple[str, wire.QuotaUse]
"""A shard, and what it uses of a quota."""


class QuotaCause(Enum):
    """Why a part of a quota moves; the values are used in metrics."""

    #: another shard's clusters lack machines that it may not purchase
    SHORTFALL = "shortfall"
    #: another shard has joined, and has no part
    JOINED = "joined"


class QuotaMove(NamedTuple):
    """So many machines of a quota that `to` may purchase instead of `giver`."""

    quota: QuotaName
    giver: str
    to: str
    machines: int
    cause: QuotaCause
    reason: str


class QuotaChoice(NamedTuple):
    """The moves that are due, for which needs, and the quotas that they were chosen from."""

    moves: Sequence[QuotaMove]
    needs: Sequence[ShortNeed]
    rows: Mapping[QuotaName, Quota]

    def still_due(self, registry: Registry) -> QuotaChoice:
        """What of it is left now: nothing of a quota that was changed since, and no need then. They
        are chosen anew in the next cycle.
        """
        left = [
            move for move in self.moves if registry.quotas.get(move.quota) is self.rows[move.quota]
        ]
        needs = self.needs if len(left) == len(self.moves) else ()
        return self._replace(moves=left, needs=needs)


def choose(
    registry: Registry,
    reports: Sequence[wire.ShardReportSnapshot],
    memory: MoveMemory,
    now_seconds: float,
) -> QuotaChoice:
    """The moves due now, from the `reports` of all live shards that are not leaving."""
    uses: defaultdict[QuotaName, list[_Use]] = defaultdict(list)
    for report in reports:
        for use in report.quotas:
            uses[use.provider, use.region].append((report.shard_id, use))
    shares = {
        name: _Shares(registry, row, uses[name], memory, now_seconds)
        for name, row in registry.quotas.items()
    }
    short = [
        (report.shard_id, each)
        for report in reports
        for each in report.shortfalls
        if each.quotas and each.age_cycles > AGE_CYCLES
    ]
    short.sort(key=lambda found: urgency(*found))
    needs = []
    for shard, each in short:
        need = ShortNeed(shard, each.cluster_id, each.profile_fingerprint)
        if not memory.was_helped(need, now_seconds) and any(
            _helped(shares.get((lack.provider, lack.region)), shard, each, lack.machines)
            for lack in each.quotas
        ):
            needs.append(need)
    for each_quota in shares.values():
        each_quota.include_joined()
    moves = [move for each in shares.values() for move in each.moves]
    return QuotaChoice(moves, needs, dict(registry.quotas))


def _helped(shares: _Shares | None, shard: str, short: wire.Shortfall, machines: int) -> bool:
    if shares is None:
        return False
    text = (
        f"cluster {short.cluster_id} of shard {shard} lacked machines for {short.count} pods of "
        f"priority {short.priority} for {short.age_cycles} cycles, and its quota was used up"
    )
    return shares.give(shard, machines, QuotaCause.SHORTFALL, text, whole=short.same_domain)


class _Shares:
    """One quota: what shards, which use as much, can spare, and the moves chosen so far."""

    def __init__(
        self,
        registry: Registry,
        row: Quota,
        uses: Sequence[_Use],
        memory: MoveMemory,
        now_seconds: float,
    ) -> None:
        self.moves: list[QuotaMove] = []
        self._row = row
        self._held = held = {shard: use.held for shard, use in uses}
        listed = [use.listed for _, use in uses]
        parts = {s: n for s, n in row.per_shard.items() if not _is_removed(registry, s)}
        # Parts that are changing already are left alone until the shards have confirmed them.
        self._settled = all(row.slice_of(shard) == part for shard, part in parts.items())
        self._spare = {
            shard: part - held[shard] - _margin(part)
            for shard, part in row.per_shard.items()
            if shard in held and memory.may_give(row.name, shard, now_seconds)
        }
        self._spare |= {s: n for s, n in row.per_shard.items() if s not in parts}
        # Machines that came with racks may exceed the part of their shard; those of a removed shard
        # may not have come to another one yet.
        used = sum(max(parts.get(s, 0), held.get(s, 0)) for s in {*parts, *held})
        nobodys = max(0, max(listed, default=0) - sum(held.values()))
        self._excess = sum(parts.values()) - used - nobodys

    def give(
        self, to: str, machines: int, cause: QuotaCause, text: str, *, whole: bool = False
    ) -> bool:
        """Give up to `machines` to a shard, or all of them or none; whether any moves."""
        givers = {s: n for s, n in self._spare.items() if s != to and n > 0}
        available = sum(givers.values()) + min(0, self._excess)
        left = min(machines, available)
        if not self._settled or to not in self._held or left <= 0 or (whole and left < machines):
            return False
        for giver, spare in sorted(givers.items(), key=lambda each: (-each[1], each[0])):
            moves = min(left, spare)
            if moves:
                reason = f"{text}; shard {giver} had {spare} to spare and gave {moves}"
                self.moves.append(QuotaMove(self._row.name, giver, to, moves, cause, reason))
                self._spare[giver] -= moves
                left -= moves
        self._spare.pop(to, None)  # what it has just been given it needs
        return True

    def include_joined(self) -> None:
        """Give shards that have no part their even one."""
        if not self._held:
            return
        even = sum(self._row.per_shard.values()) // len(self._held)
        for shard in sorted(self._held):
            if shard not in self._row.per_shard and all(move.to != shard for move in self.moves):
                text = f"shard {shard} joined without a part, where {even} would be even"
                self.give(shard, even, QuotaCause.JOINED, text)


def _is_removed(registry: Registry, shard: str) -> bool:
    row = registry.shards.get(shard)
    return row is None or row.removed


def _margin(part: int) -> int:
    return -(-part // round(1 / MARGIN))
