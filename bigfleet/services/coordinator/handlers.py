"""Handlers of the leader's calls: decisions of the pure modules, committed in order."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.errors import UnknownObject
from bigfleet.observe import metrics
from bigfleet.ports.clock import to_nanos
from bigfleet.services.coordinator import (
    acknowledgements,
    clusters,
    domains,
    quotas,
    shard_removal,
    shards,
    shares,
    validation,
)
from bigfleet.services.coordinator.instructions import pending
from bigfleet.services.coordinator.leader_term import LeaderTerm, NotLeader
from bigfleet.services.coordinator.reports import LIVENESS_TIMEOUT_SECONDS
from bigfleet.services.coordinator.rows import Cluster, DomainName, RowChanges

_LOG = logging.getLogger(__name__)
# Rows in one transaction; etcd is configured for twice as many.
_MAX_ROWS = 1000
# A new leader waits this long for all shards to report before it assigns domains.
_SETTLING_SECONDS = 5.0


class LeaderHandlers:
    """No domain is assigned before `expected_shards` have registered."""

    def __init__(self, expected_shards: int) -> None:
        self._expected_shards = expected_shards
        shares.count_from_zero()

    async def report(self, leader_term: LeaderTerm, report: wire.ShardReport) -> wire.ReportAck:
        """Record a shard's report; the answer carries its instructions. Fenced for a stale one."""
        validation.report(report)
        leader_term.require_leadership()
        now = leader_term.clock.monotonic_seconds()
        unix_ns = to_nanos(leader_term.clock.unix_seconds())
        await leader_term.write(lambda: shards.registered(leader_term.registry, report, unix_ns))
        received = leader_term.reports.record(report, now, unix_ns)
        accepted_ids = {*received.accepted_ids, *acknowledgements.accepted(report)}
        received.accepted_ids = acknowledgements.remembered(
            leader_term.registry, report.shard_id, accepted_ids
        )
        await leader_term.write(lambda: self._changes_from(leader_term, report))
        await leader_term.write(
            lambda: quotas.confirmed(
                leader_term.registry, report, received.accepted_ids, leader_term.new_instruction_id
            )
        )
        await self._continue_removal(leader_term, report.shard_id)
        _record_incidents(leader_term, report)
        leader_term.require_leadership()
        return self._reply(
            leader_term,
            report,
            self._pending_instructions(leader_term, report, received.accepted_ids),
        )

    async def claim_epoch(self, leader_term: LeaderTerm, shard_id: str) -> int:
        """A new epoch for a shard that has lost its own; 0 for one that never reported.

        NotLeader while a process of the shard may be alive; Fenced for a shard that was removed.
        """
        validation.name("shard_id", shard_id)
        leader_term.require_leadership()
        now = leader_term.clock.monotonic_seconds()
        if shard_id not in leader_term.registry.shards:
            return 0
        if (
            seconds_since_report := leader_term.reports.seconds_since_alive(shard_id, now)
        ) <= LIVENESS_TIMEOUT_SECONDS:
            where = leader_term.registry.shards[shard_id].address or "an unknown address"
            wait = LIVENESS_TIMEOUT_SECONDS - seconds_since_report
            raise NotLeader(
                f"shard {shard_id} may be alive at {where}: stop it there; another process gets "
                f"an epoch once it has been silent for {LIVENESS_TIMEOUT_SECONDS:.0f} s, in "
                f"{wait:.0f} s at the earliest"
            )
        leader_term.reports.epoch_issued(shard_id, now)
        await leader_term.write(lambda: shards.issue_epoch(leader_term.registry, shard_id))
        return leader_term.registry.shards[shard_id].epoch

    def _pending_instructions(
        self, leader_term: LeaderTerm, report: wire.ShardReport, accepted_ids: set[str]
    ) -> list[wire.CoordinatorInstruction]:
        if report.seen_term > leader_term.term:
            return []  # the shard would reject them all
        reassignments = acknowledgements.lost_domains(leader_term.registry, report, accepted_ids)
        return pending(leader_term.registry, report.shard_id, accepted_ids, reassignments)

    def _changes_from(self, leader_term: LeaderTerm, report: wire.ShardReport) -> RowChanges:
        """All changes from a report except those to the shard's own row."""
        registry = leader_term.registry
        changes = shards.providers_seen(registry, report, _eligible_shards(leader_term))
        changes |= acknowledgements.apply_acks(registry, report, leader_term.new_instruction_id)
        changes |= clusters.removed_clusters(registry, report)
        if self._may_assign(leader_term):
            changes |= domains.assign_unowned(
                registry,
                _eligible_shards(leader_term),
                _observations(report),
                leader_term.new_instruction_id,
            )
        return changes

    def _may_assign(self, leader_term: LeaderTerm) -> bool:
        """Whether enough shards have registered and reported to assign domains."""
        registered = len(leader_term.registry.shards)  # including removed ones
        if (
            registered < self._expected_shards
            or leader_term.reports.newest_term_seen() > leader_term.term
        ):
            return False
        known = {shard.id for shard in leader_term.registry.known_shards()}
        now = leader_term.clock.monotonic_seconds()
        settled = now - leader_term.reports.since_seconds > _SETTLING_SECONDS
        return settled or known <= set(leader_term.reports.live(now))

    async def _continue_removal(self, leader_term: LeaderTerm, shard_id: str) -> None:
        """Have a leaving shard release its next rows; remove it when none are left."""
        row = leader_term.registry.shards.get(shard_id)
        if row is None or not row.leaving:
            return
        await leader_term.write(
            lambda: shard_removal.next_removal_step(
                leader_term.registry,
                shard_id,
                _MAX_ROWS,
                leader_term.new_instruction_id,
                self._candidates(leader_term),
            )
        )

    def _candidates(self, leader_term: LeaderTerm) -> list[str]:
        """The shards that domains may be assigned to now."""
        return _eligible_shards(leader_term) if self._may_assign(leader_term) else []

    def _reply(
        self,
        leader_term: LeaderTerm,
        report: wire.ShardReport,
        instructions: list[wire.CoordinatorInstruction],
    ) -> wire.ReportAck:
        if report.seen_term == leader_term.term:
            leader_term.sequence_numbers.advance_past(report.seen_sequence)
        for instruction in instructions:
            instruction.coordinator_term, instruction.sequence_number = (
                leader_term.term,
                leader_term.sequence_numbers.next(),
            )
        metrics.coordinator_instructions.inc(len(instructions))
        return wire.ReportAck(
            coordinator_term=leader_term.term, acknowledged=True, instructions=instructions
        )

    async def resolve(
        self, leader_term: LeaderTerm, cluster: str, asking: str
    ) -> tuple[Cluster, str]:
        """The shard that serves a cluster, and its address; chosen now for a new cluster."""
        validation.name("cluster_id", cluster)
        leader_term.require_leadership()

        def resolve() -> Cluster:
            return clusters.resolve(
                leader_term.registry, cluster, asking, _eligible_shards(leader_term)
            )

        await leader_term.write(lambda: clusters.assign(leader_term.registry, resolve()))
        row = resolve()
        shard = leader_term.registry.shards.get(row.shard)
        if shard is None:
            raise UnknownObject(f"cluster {cluster}: its shard {row.shard} no longer exists")
        return row, shard.address

    async def rebalance(self, leader_term: LeaderTerm) -> None:
        """Move domains and parts of quotas to shards that lack machines, or have less than their
        even part. To be called every second or so.
        """
        leader_term.require_leadership()
        if self._may_assign(leader_term):
            received = (leader_term.reports.of(shard) for shard in _eligible_shards(leader_term))
            reports = [each.snapshot for each in received if each is not None]
            await shares.rebalance(leader_term, reports)

    async def assign(self, leader_term: LeaderTerm, name: DomainName, shard: str) -> None:
        """Transfer a domain to a shard; its present shard releases it first."""
        validation.name("shard_id", shard)
        await leader_term.write(
            lambda: domains.move(leader_term.registry, name, shard, leader_term.new_instruction_id)
        )

    async def unassign(self, leader_term: LeaderTerm, name: DomainName) -> None:
        """Take a domain from its shard."""
        await leader_term.write(
            lambda: domains.release(leader_term.registry, name, leader_term.new_instruction_id)
        )

    async def set_quota(self, leader_term: LeaderTerm, quota: wire.QuotaAllocation) -> None:
        """Replace a quota allocation."""
        validation.quota(quota)
        await leader_term.write(
            lambda: quotas.replaced(leader_term.registry, quota, leader_term.new_instruction_id)
        )

    async def remove(self, leader_term: LeaderTerm, shard_id: str) -> None:
        """Remove a shard: a live one after it has released everything, a silent one at once.

        NotLeader while a new leader does not know yet whether the shard is silent.
        """
        validation.name("shard_id", shard_id)
        leader_term.require_leadership()
        now = leader_term.clock.monotonic_seconds()
        if shard_id in set(leader_term.reports.live(now)):
            await leader_term.write(lambda: shards.leaving(leader_term.registry, shard_id))
            await self._continue_removal(leader_term, shard_id)
            return
        if shard_id in leader_term.registry.shards and not leader_term.reports.observed_long_enough(
            now
        ):
            wait = LIVENESS_TIMEOUT_SECONDS - (now - leader_term.reports.since_seconds)
            raise NotLeader(
                f"this leader is new and has no report of shard {shard_id} yet; retry in "
                f"{wait:.0f} s"
            )
        await leader_term.write(lambda: shards.removed(leader_term.registry, shard_id))
        leader_term.reports.forget(shard_id)
        await self.release_orphans(leader_term)

    async def release_orphans(self, leader_term: LeaderTerm) -> None:
        """Give the domains of removed shards to others, and free their clusters."""

        def batch() -> RowChanges:
            return shard_removal.orphaned_rows(
                leader_term.registry,
                _MAX_ROWS,
                leader_term.new_instruction_id,
                self._candidates(leader_term),
            )

        while batch():
            await leader_term.write(batch)


def _eligible_shards(leader_term: LeaderTerm) -> list[str]:
    """Live shards that are not leaving."""
    live = leader_term.reports.live(leader_term.clock.monotonic_seconds())
    rows = (leader_term.registry.shards.get(shard) for shard in live)
    return [row.id for row in rows if row is not None and not (row.leaving or row.removed)]


def _observations(report: wire.ShardReport) -> Iterator[domains.Observation]:
    for each in report.unowned_domains:
        yield domains.Observation(
            each.topology_key, each.topology_value, each.machines, each.instance_type
        )


def _record_incidents(leader_term: LeaderTerm, report: wire.ShardReport) -> None:
    """Count and log incidents that a report reveals."""
    shard = report.shard_id
    for ack in acknowledgements.rejected(report):
        if ack.outcome == wire.InstructAck.FAILED:  # refused for good reasons, or overtaken
            text = "shard %s did not carry out %s: %s"
            _LOG.warning(text, shard, ack.instruction_id, ack.reason)
            continue
        outcome = wire.InstructAck.Outcome.Name(ack.outcome).lower()
        _incident(outcome, f"shard {shard} rejected {ack.instruction_id}: {ack.reason}")
    if report.seen_term > leader_term.term:
        _incident(
            "newer_term_seen",
            f"shard {shard} has accepted instructions of term {report.seen_term}, later than this "
            f"leader's {leader_term.term}: the coordinator's state was lost or is an old copy. No "
            "domain is assigned before a snapshot has been restored",
        )
    if surplus := acknowledgements.surplus_domains(leader_term.registry, report):
        _incident("surplus_domains", f"shard {shard} owns {surplus} domains not assigned to it")


def _incident(incident_type: str, text: str) -> None:
    metrics.coordinator_incidents.labels(incident_type).inc()
    _LOG.error(text, extra={"incident": incident_type})
