"""Puts the shard's report together: numbers at once, the reasons of shortfalls in a thread."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.api.v1alpha1.coordinator_pb2 import DiscoveredDomain
from bigfleet.model.domain import Domain, region_of
from bigfleet.model.errors import BigFleetError
from bigfleet.observe import metrics
from bigfleet.ports.clock import Clock
from bigfleet.services.shard.config import ShardConfig
from bigfleet.services.shard.coordination import report
from bigfleet.services.shard.decide.compute import CycleResult
from bigfleet.services.shard.decide.cycle import Cycle
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.services.shard.fleet.ownership import Ownership

MAX_DOMAINS = 1000
RESEND_INTERVAL_SECONDS = 30.0


class DomainObservations:
    """What is to be told, and what was."""

    def __init__(self) -> None:
        self._acknowledged_at: dict[Domain, float] = {}
        self._term = 0

    def due(
        self,
        seen: Mapping[Domain, Counter[str]],
        owned: Collection[Domain],
        now_seconds: float,
    ) -> list[DiscoveredDomain]:
        """At most 1,000, those that were never told first. `seen` counts machines by type."""
        foreign = {domain: counts for domain, counts in seen.items() if domain not in owned}
        self._acknowledged_at = {d: at for d, at in self._acknowledged_at.items() if d in foreign}
        late = now_seconds - RESEND_INTERVAL_SECONDS
        due = [domain for domain in foreign if self._acknowledged_at.get(domain, late) <= late]
        due.sort(key=lambda domain: self._acknowledged_at.get(domain, 0.0))
        return [_observation(domain, foreign[domain]) for domain in due[:MAX_DOMAINS]]

    def acknowledged(
        self, domains: Iterable[DiscoveredDomain], term: int, now_seconds: float
    ) -> None:
        """The leader of `term` has heard of `domains`; a new leader must hear of all again."""
        if term != self._term:
            self._term, self._acknowledged_at = term, {}
        for each in domains:
            self._acknowledged_at[Domain(each.topology_key, each.topology_value)] = now_seconds


def _observation(domain: Domain, counts: Counter[str]) -> DiscoveredDomain:
    """Among equally common types the first by name is told, so that all shards tell the same."""
    return DiscoveredDomain(
        topology_key=domain.key,
        topology_value=domain.value,
        machines=counts.total(),
        instance_type=min(counts, key=lambda name: (-counts[name], name)),
    )


_log = logging.getLogger(__name__)
_MAX_REGIONS = 100
_MAX_REMOVALS = 1000
_NANOS = 1_000_000_000
_Shortfalls = tuple[list[wire.Shortfall], int]


@dataclass
class Reporter:
    """`address` is where operators reach this shard; it is known once the shard listens. What takes
    long is done by `offload`, elsewhere than on the event loop.
    """

    config: ShardConfig
    epoch: int
    clock: Clock
    ownership: Ownership
    inventory: Inventory
    cycle: Cycle
    address: str = ""
    offload: Callable[[Callable[[], _Shortfalls]], Awaitable[_Shortfalls]] = asyncio.to_thread
    _observations: DomainObservations = field(default_factory=DomainObservations, init=False)
    _cached_shortfalls: tuple[CycleResult, _Shortfalls] | None = field(default=None, init=False)

    async def compose(self) -> wire.ShardReport:
        """The report as of now, but for answers to instructions."""
        record, now_seconds = self.ownership.record, self.clock.monotonic_seconds()
        seen = self.inventory.observed_domains()
        out_of_domain_machines, out_of_domain_omitted = report.out_of_domain_machines(
            self.inventory
        )
        made = wire.ShardReport(
            shard_id=self.config.shard_id,
            cycle=self.cycle.count,
            timestamp_unix_nanos=int(self.clock.unix_seconds() * _NANOS),
            shard_epoch=self.epoch,
            shard_address=self.address,
            providers=self._providers(),
            unowned_domains=self._observations.due(seen, record.domains, now_seconds),
            owned_domains=len(record.domains),
            seen_term=record.newest.term,
            seen_sequence=record.newest.sequence,
            out_of_domain_machines=out_of_domain_machines,
            out_of_domain_omitted=out_of_domain_omitted,
            removals=self._removals(),
            domain_keys=self.config.domain_keys,
        )
        metrics.shard_owned_domains.set(len(record.domains))
        result = self.cycle.latest
        if result is not None:
            there = sum(counts.total() for counts in seen.values())
            metrics.shard_machines_of_other_shards.set(there - len(result.inputs.fleet))
            made.summary.CopyFrom(report.summary(result.inputs.fleet))
            made.splits.extend(report.splits(result, self.inventory, self.config.domain_keys))
            rows, made.shortfalls_omitted = await self._shortfalls(result)
            made.shortfalls.extend(rows)
        return made

    def acknowledged(self, sent: wire.ShardReport, term: int) -> None:
        """The leader of `term` has this report."""
        self._observations.acknowledged(sent.unowned_domains, term, self.clock.monotonic_seconds())
        ended = [each.cluster_id for each in sent.removals if not each.machines_left]
        try:
            self.ownership.drop_clusters(ended)
        except BigFleetError as error:  # the next report says it again
            _log.error("the end of a removal is not kept", extra={"why": str(error)})
        else:
            self.cycle.removals.end(ended)

    def _removals(self) -> Iterator[wire.ClusterRemoval]:
        left = sorted(self.cycle.removals.left().items(), key=itemgetter(1))
        for cluster, machines in left[:_MAX_REMOVALS]:
            yield wire.ClusterRemoval(cluster_id=cluster, machines_left=machines)

    async def _shortfalls(self, result: CycleResult) -> _Shortfalls:
        """Worked out once for each decision."""
        if self._cached_shortfalls is None or self._cached_shortfalls[0] is not result:
            self._cached_shortfalls = (
                result,
                await self.offload(partial(report.shortfalls, result)),
            )
        return self._cached_shortfalls[1]

    def _providers(self) -> Iterator[wire.ProviderEntry]:
        """What this shard's machines come from, region by region."""
        name, address = self.inventory.provider_name, self.config.provider_address
        result = self.cycle.latest
        flavours = result.inputs.fleet.flavours if result and name else ()
        for region in sorted({region_of(flavour.labels) for flavour in flavours})[:_MAX_REGIONS]:
            yield wire.ProviderEntry(name=name, address=address, region=region)
