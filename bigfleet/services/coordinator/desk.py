"""What the leader does for those who call it: decisions of the pure modules, committed in order."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.errors import UnknownObject
from bigfleet.observe import metrics
from bigfleet.services.coordinator import (
    acknowledgements,
    checks,
    clusters,
    departures,
    domains,
    quotas,
    shards,
)
from bigfleet.services.coordinator.instructions import pending
from bigfleet.services.coordinator.reign import NotLeading, Reign
from bigfleet.services.coordinator.reports import LIVE_SECONDS
from bigfleet.services.coordinator.rows import Cluster, DomainName, RowChanges

_LOG = logging.getLogger(__name__)
# Rows in one transaction; etcd is set to take twice as many.
_MOST_ROWS = 1000
# A new leader waits so long for shards that are slower to report before it gives domains away.
_SETTLING_SECONDS = 5.0
_NANOS = 1_000_000_000


class Desk:
    """`expected_shards`: no domain is given away before so many have registered."""

    def __init__(self, expected_shards: int) -> None:
        self._expected_shards = expected_shards

    async def report(self, reign: Reign, report: wire.ShardReport) -> wire.ReportAck:
        """Take a shard's report; the answer carries what it is to do. Fenced for a stale one."""
        checks.report(report)
        reign.require()
        now = reign.clock.monotonic_seconds()
        unix_ns = int(reign.clock.unix_seconds() * _NANOS)
        await reign.write(lambda: shards.registered(reign.registry, report, unix_ns))
        heard = reign.reports.take(report, now, unix_ns)
        await reign.write(lambda: self._learnt(reign, report))
        await self._go_on_leaving(reign, report.shard_id)
        _note_incidents(reign, report)
        heard.done.update(acknowledgements.accepted(report))
        reign.require()
        return self._answer(reign, report, self._orders(reign, report, heard.done))

    async def begin_anew(self, reign: Reign, shard_id: str) -> int:
        """A new epoch for a shard that has lost its own; 0 for one that never reported.

        NotLeading while a process of it lives, as far as this leader can know; Fenced for one that
        was removed.
        """
        checks.name("shard_id", shard_id)
        reign.require()
        now = reign.clock.monotonic_seconds()
        if shard_id not in reign.registry.shards:
            return 0
        if (ago := reign.reports.alive_seconds_ago(shard_id, now)) <= LIVE_SECONDS:
            where = reign.registry.shards[shard_id].address or "an address not known yet"
            raise NotLeading(
                f"shard {shard_id} may be alive at {where}: stop it there; it must have been "
                f"silent for {LIVE_SECONDS:.0f} s before another process is given an epoch, and "
                f"that takes {LIVE_SECONDS - ago:.0f} s more at least"
            )
        reign.reports.begins(shard_id, now)
        await reign.write(lambda: shards.begun_anew(reign.registry, shard_id))
        return reign.registry.shards[shard_id].epoch

    def _orders(
        self, reign: Reign, report: wire.ShardReport, done: set[str]
    ) -> list[wire.CoordinatorInstruction]:
        if report.seen_term > reign.term:
            return []  # it would refuse them all
        reminders = acknowledgements.forgotten(reign.registry, report, done)
        return pending(reign.registry, report.shard_id, done, reminders)

    def _learnt(self, reign: Reign, report: wire.ShardReport) -> RowChanges:
        """All that a report changes beside its shard's own row."""
        registry = reign.registry
        changes = shards.providers_seen(registry, report, _staying(reign))
        changes |= acknowledgements.settled(registry, report, reign.new_order)
        changes |= clusters.gone(registry, report)
        if self._may_give(reign):
            changes |= domains.give(registry, _staying(reign), _seen(report), reign.new_order)
        return changes

    def _may_give(self, reign: Reign) -> bool:
        """Whether it is known who is there to be given anything."""
        registered = len(reign.registry.shards)  # those that have left again did so, too
        if registered < self._expected_shards or reign.reports.newest_term_seen() > reign.term:
            return False
        known = {shard.id for shard in reign.registry.known_shards()}
        now = reign.clock.monotonic_seconds()
        settled = now - reign.reports.since_seconds > _SETTLING_SECONDS
        return settled or known <= set(reign.reports.live(now))

    async def _go_on_leaving(self, reign: Reign, shard_id: str) -> None:
        """A leaving shard is told to release the next of what it has; without any it is gone."""
        await reign.write(
            lambda: departures.step(reign.registry, shard_id, _MOST_ROWS, reign.new_order)
        )

    def _answer(
        self, reign: Reign, report: wire.ShardReport, orders: list[wire.CoordinatorInstruction]
    ) -> wire.ReportAck:
        if report.seen_term == reign.term:
            reign.numbers.pass_over(report.seen_sequence)
        for order in orders:
            order.coordinator_term, order.sequence_number = reign.term, reign.numbers.next()
        metrics.coordinator_instructions.inc(len(orders))
        return wire.ReportAck(coordinator_term=reign.term, acknowledged=True, instructions=orders)

    async def resolve(self, reign: Reign, cluster: str, asking: str) -> tuple[Cluster, str]:
        """The shard that serves a cluster, and its address; one is chosen where nobody did."""
        checks.name("cluster_id", cluster)
        reign.require()

        def serving() -> Cluster:
            return clusters.serving(reign.registry, cluster, asking, _staying(reign))

        await reign.write(lambda: clusters.bound(reign.registry, serving()))
        row = serving()
        shard = reign.registry.shards.get(row.shard)
        if shard is None:
            raise UnknownObject(f"cluster {cluster} is served by shard {row.shard}, which is gone")
        return row, shard.address

    async def assign(self, reign: Reign, name: DomainName, shard: str) -> None:
        """Bring a domain to a shard; its present one releases it first."""
        checks.name("shard_id", shard)
        await reign.write(lambda: domains.move(reign.registry, name, shard, reign.new_order))

    async def unassign(self, reign: Reign, name: DomainName) -> None:
        """Take a domain from its shard."""
        await reign.write(lambda: domains.release(reign.registry, name, reign.new_order))

    async def set_quota(self, reign: Reign, quota: wire.QuotaAllocation) -> None:
        """Replace an allocation."""
        checks.quota(quota)
        await reign.write(lambda: quotas.replaced(reign.registry, quota, reign.new_order()))

    async def remove(self, reign: Reign, shard_id: str) -> None:
        """A live shard gives up what it has, bit by bit, and is then barred; a silent one at once.

        NotLeading while a new leader does not know yet whether the shard is silent.
        """
        checks.name("shard_id", shard_id)
        reign.require()
        now = reign.clock.monotonic_seconds()
        if shard_id in set(reign.reports.live(now)):
            await reign.write(lambda: shards.leaving(reign.registry, shard_id))
            await self._go_on_leaving(reign, shard_id)
            return
        if shard_id in reign.registry.shards and not reign.reports.silence_known(now):
            wait = LIVE_SECONDS - (now - reign.reports.since_seconds)
            raise NotLeading(
                f"this leader is new and has not heard of shard {shard_id} yet; ask again in "
                f"{wait:.0f} s"
            )
        await reign.write(lambda: shards.removed(reign.registry, shard_id))
        reign.reports.forget(shard_id)
        await drop_orphans(reign)


async def drop_orphans(reign: Reign) -> None:
    """Free what still belongs to shards that were removed."""

    def batch() -> RowChanges:
        return departures.orphaned(reign.registry, _MOST_ROWS, reign.new_order)

    while batch():
        await reign.write(batch)


def _staying(reign: Reign) -> list[str]:
    """Live shards that are not about to leave."""
    live = reign.reports.live(reign.clock.monotonic_seconds())
    rows = (reign.registry.shards.get(shard) for shard in live)
    return [row.id for row in rows if row is not None and not (row.leaving or row.removed)]


def _seen(report: wire.ShardReport) -> Iterator[domains.Sighting]:
    for each in report.unowned_domains:
        yield domains.Sighting(
            each.topology_key, each.topology_value, each.machines, each.instance_type
        )


def _note_incidents(reign: Reign, report: wire.ShardReport) -> None:
    """What should not be is counted and logged with the one who knows of it."""
    shard = report.shard_id
    for ack in acknowledgements.refused(report):
        outcome = wire.InstructAck.Outcome.Name(ack.outcome).lower()
        _incident(outcome, f"shard {shard} refused order {ack.instruction_id}: {ack.reason}")
    if report.seen_term > reign.term:
        _incident(
            "newer_term_seen",
            f"shard {shard} has taken orders of term {report.seen_term}, and this leader's term is "
            f"{reign.term}: the coordinator's state was lost or is an old copy. No domain is given "
            "away before a snapshot has been restored",
        )
    if surplus := acknowledgements.unexplained(reign.registry, report):
        _incident("unexplained_domains", f"shard {shard} acts on {surplus} domains not given to it")


def _incident(kind: str, text: str) -> None:
    metrics.coordinator_incidents.labels(kind).inc()
    _LOG.error(text, extra={"incident": kind})
