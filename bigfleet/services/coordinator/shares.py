"""Carries out what the ladder, the quotas and the balance of a fleet want moved between shards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.observe import metrics
from bigfleet.services.coordinator import domains, ladder, quota_moves, quotas, rebalancing
from bigfleet.services.coordinator.domain_moves import Cause, DomainMove
from bigfleet.services.coordinator.leader_term import LeaderTerm
from bigfleet.services.coordinator.quota_moves import QuotaCause
from bigfleet.services.coordinator.rows import RowChanges

_LOG = logging.getLogger(__name__)


def count_from_zero() -> None:
    """Make causes that have not occurred yet read 0 instead of being absent."""
    for cause in Cause:
        metrics.coordinator_domains_moved.labels(cause.value)
    for quota_cause in QuotaCause:
        metrics.coordinator_quota_moved.labels(quota_cause.value)


async def rebalance(leader_term: LeaderTerm, reports: Sequence[wire.ShardReportSnapshot]) -> None:
    """Order the moves that are due after the `reports` of all live shards that are not leaving."""
    now = leader_term.clock.monotonic_seconds()
    await _move_domains(leader_term, reports, now)
    await asyncio.sleep(0)
    await _move_quotas(leader_term, reports, now)


async def _move_domains(
    leader_term: LeaderTerm, reports: Sequence[wire.ShardReportSnapshot], now_seconds: float
) -> None:
    known = leader_term.registry, reports, leader_term.domain_moves, now_seconds
    help_due = ladder.choose(*known)
    moves = help_due.moves
    if not moves:
        await asyncio.sleep(0)  # of many shards each choice takes a while: serve between two
        moves = rebalancing.choose(*known)
    donors = {move.name: leader_term.registry.domains[move.name].shard for move in moves}
    await leader_term.write(lambda: _moved(leader_term, moves))
    leader_term.domain_moves.note(moves, help_due.needs, now_seconds, help_due.considered)
    for move in moves:
        if move.drain:
            drained = len(move.drain.machine_ids)
            leader_term.domain_moves.note_drain(donors[move.name], drained, now_seconds)
        metrics.coordinator_domains_moved.labels(move.cause.value).inc()
        fields = {"domain": "=".join(move.name), "to": move.to, "why": move.reason}
        _LOG.info("domain moves to another shard", extra=fields)


async def _move_quotas(
    leader_term: LeaderTerm, reports: Sequence[wire.ShardReportSnapshot], now_seconds: float
) -> None:
    registry, memory = leader_term.registry, leader_term.domain_moves
    due = quota_moves.choose(registry, reports, memory, now_seconds)

    def decide() -> RowChanges:
        nonlocal due
        due = due.still_due(registry)
        return quotas.moved(registry, due.moves, leader_term.new_instruction_id)

    await leader_term.write(decide)
    memory.note_quotas([(move.quota, move.to) for move in due.moves], due.needs, now_seconds)
    for move in due.moves:
        metrics.coordinator_quota_moved.labels(move.cause.value).inc(move.machines)
        fields = {"quota": " ".join(move.quota), "to": move.to, "why": move.reason}
        _LOG.info("part of a quota moves to another shard", extra=fields)


def _moved(leader_term: LeaderTerm, moves: Iterable[DomainMove]) -> RowChanges:
    changes: RowChanges = {}
    for each in moves:
        changes |= domains.move(
            leader_term.registry,
            each.name,
            each.to,
            leader_term.new_instruction_id,
            each.reason,
            each.home,
            each.drain,
        )
    return changes
