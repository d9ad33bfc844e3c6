"""What the leader does for those who call it: decisions of the pure modules, committed in order."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.errors import UnknownObject
from bigfleet.observe import metrics
from bigfleet.services.coordinator import (
    acknowledgements,
    clusters,
    domains,
    quotas,
    shard_removal,
    shards,
    validation,
)
from bigfleet.services.coordinator.instructions import pending
from bigfleet.services.coordinator.leader_term import LeaderTerm, NotLeader
from bigfleet.services.coordinator.reports import LIVENESS_TIMEOUT_SECONDS
from bigfleet.services.coordinator.rows import Cluster, DomainName, RowChanges

_LOG = logging.getLogger(__name__)
# Rows in one transaction; etcd is set to take twice as many.
_MAX_ROWS = 1000
# A new leader waits so long for shards that are slower to report before it gives domains away.
_SETTLING_SECONDS = 5.0
_NANOS = 1_000_000_000


class LeaderHandlers:
    """`expected_shards`: no domain is given away before so many have registered."""

    def __init__(self, expected_shards: int) -> None:
        self._expected_shards = expected_shards

    async def report(self, leader_term: LeaderTerm, report: wire.ShardReport) -> wire.ReportAck:
        """Take a shard's report; the answer carries what it is to do. Fenced for a stale one."""
        validation.report(report)
        leader_term.require_leadership()
        now = leader_term.clock.monotonic_seconds()
        unix_ns = int(leader_term.clock.unix_seconds() * _NANOS)
        await leader_term.write(lambda: shards.registered(leader_term.registry, report, unix_ns))
        received = leader_term.reports.record(report, now, unix_ns)
        await leader_term.write(lambda: self._changes_from(leader_term, report))
        await self._continue_removal(leader_term, report.shard_id)
        _record_incidents(leader_term, report)
        received.accepted_ids.update(acknowledgements.accepted(report))
        leader_term.require_leadership()
        return self._reply(
            leader_term,
            report,
            self._pending_instructions(leader_term, report, received.accepted_ids),
        )

    async def claim_epoch(self, leader_term: LeaderTerm, shard_id: str) -> int:
        """A new epoch for a shard that has lost its own; 0 for one that never reported.

        NotLeading while a process of it lives, as far as this leader can know; Fenced for one that
        was removed.
        """
        validation.name("shard_id", shard_id)
        leader_term.require_leadership()
        now = leader_term.clock.monotonic_seconds()
        if shard_id not in leader_term.registry.shards:
            return 0
        if (
            seconds_since_report := leader_term.reports.seconds_since_alive(shard_id, now)
        ) <= LIVENESS_TIMEOUT_SECONDS:
            where = leader_term.registry.shards[shard_id].address or "an address not known yet"
            raise NotLeader(
                f"shard {shard_id} may be alive at {where}: stop it there; it must have been "
                f"silent for {LIVENESS_TIMEOUT_SECONDS:.0f} s before another process is "
                "given an epoch, and "
                f"that takes {LIVENESS_TIMEOUT_SECONDS - seconds_since_report:.0f} s more at least"
            )
        leader_term.reports.epoch_issued(shard_id, now)
        await leader_term.write(lambda: shards.issue_epoch(leader_term.registry, shard_id))
        return leader_term.registry.shards[shard_id].epoch

    def _pending_instructions(
        self, leader_term: LeaderTerm, report: wire.ShardReport, accepted_ids: set[str]
    ) -> list[wire.CoordinatorInstruction]:
        if report.seen_term > leader_term.term:
            return []  # it would refuse them all
        reassignments = acknowledgements.lost_domains(leader_term.registry, report, accepted_ids)
        return pending(leader_term.registry, report.shard_id, accepted_ids, reassignments)

    def _changes_from(self, leader_term: LeaderTerm, report: wire.ShardReport) -> RowChanges:
        """All that a report changes beside its shard's own row."""
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
        """Whether it is known who is there to be given anything."""
        registered = len(leader_term.registry.shards)  # those that have left again did so, too
        if (
            registered < self._expected_shards
            or leader_term.reports.newest_term_seen() > leader_term.term
        ):
            return False
        known = {shard.id for shard in leader_term.registry.known_shards()}
        now = leader_term.clock.monotonic_seconds()
        apply_acks = now - leader_term.reports.since_seconds > _SETTLING_SECONDS
        return apply_acks or known <= set(leader_term.reports.live(now))

    async def _continue_removal(self, leader_term: LeaderTerm, shard_id: str) -> None:
        """A leaving shard is told to release the next of what it has; without any it is gone."""
        await leader_term.write(
            lambda: shard_removal.next_removal_step(
                leader_term.registry, shard_id, _MAX_ROWS, leader_term.new_instruction_id
            )
        )

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
        """The shard that serves a cluster, and its address; one is chosen where nobody did."""
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
            raise UnknownObject(f"cluster {cluster} is served by shard {row.shard}, which is gone")
        return row, shard.address

    async def assign(self, leader_term: LeaderTerm, name: DomainName, shard: str) -> None:
        """Bring a domain to a shard; its present one releases it first."""
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
        """Replace an allocation."""
        validation.quota(quota)
        await leader_term.write(
            lambda: quotas.replaced(leader_term.registry, quota, leader_term.new_instruction_id())
        )

    async def remove(self, leader_term: LeaderTerm, shard_id: str) -> None:
        """A live shard gives up what it has, bit by bit, and is then barred; a silent one at once.

        NotLeading while a new leader does not know yet whether the shard is silent.
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
                f"this leader is new and has not heard of shard {shard_id} yet; ask again in "
                f"{wait:.0f} s"
            )
        await leader_term.write(lambda: shards.removed(leader_term.registry, shard_id))
        leader_term.reports.forget(shard_id)
        await release_orphans(leader_term)


async def release_orphans(leader_term: LeaderTerm) -> None:
    """Free what still belongs to shards that were removed."""

    def batch() -> RowChanges:
        return shard_removal.orphaned_rows(
            leader_term.registry, _MAX_ROWS, leader_term.new_instruction_id
        )

    while batch():
        await leader_term.write(batch)


def _eligible_shards(leader_term: LeaderTerm) -> list[str]:
    """Live shards that are not about to leave."""
    live = leader_term.reports.live(leader_term.clock.monotonic_seconds())
    rows = (leader_term.registry.shards.get(shard) for shard in live)
    return [row.id for row in rows if row is not None and not (row.leaving or row.removed)]


def _observations(report: wire.ShardReport) -> Iterator[domains.Observation]:
    for each in report.unowned_domains:
        yield domains.Observation(
            each.topology_key, each.topology_value, each.machines, each.instance_type
        )


def _record_incidents(leader_term: LeaderTerm, report: wire.ShardReport) -> None:
    """What should not be is counted and logged with the one who knows of it."""
    shard = report.shard_id
    for ack in acknowledgements.refused(report):
        outcome = wire.InstructAck.Outcome.Name(ack.outcome).lower()
        _incident(outcome, f"shard {shard} refused order {ack.instruction_id}: {ack.reason}")
    if report.seen_term > leader_term.term:
        _incident(
            "newer_term_seen",
            f"shard {shard} has taken orders of term {report.seen_term}, and this leader's term is "
            f"{leader_term.term}: the coordinator's state was lost or is an old copy. "
            "No domain is given "
            "away before a snapshot has been restored",
        )
    if surplus := acknowledgements.surplus_domains(leader_term.registry, report):
        _incident("surplus_domains", f"shard {shard} acts on {surplus} domains not given to it")


def _incident(incident_type: str, text: str) -> None:
    metrics.coordinator_incidents.labels(incident_type).inc()
    _LOG.error(text, extra={"incident": incident_type})
