"""Puts the shard's report together: numbers at once, the reasons of shortfalls in a thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.domain import region_of
from bigfleet.model.errors import BigFleetError
from bigfleet.observe import metrics
from bigfleet.ports.clock import Clock
from bigfleet.services.shard.coordination import report
from bigfleet.services.shard.coordination.estate import Estate
from bigfleet.services.shard.coordination.sightings import Sightings
from bigfleet.services.shard.cycle import Cycle
from bigfleet.services.shard.inventory import Inventory
from bigfleet.services.shard.settings import Settings
from bigfleet.services.shard.thinking import CycleResult

_log = logging.getLogger(__name__)
_MOST_REGIONS = 100
_MOST_REMOVALS = 1000
_NANOS = 1_000_000_000
_Shortfalls = tuple[list[wire.Shortfall], int]


@dataclass
class Reporter:
    """`address` is where operators reach this shard; it is known once the shard listens. What takes
    long is done by `offload`, elsewhere than on the event loop.
    """

    settings: Settings
    epoch: int
    clock: Clock
    estate: Estate
    inventory: Inventory
    cycle: Cycle
    address: str = ""
    offload: Callable[[Callable[[], _Shortfalls]], Awaitable[_Shortfalls]] = asyncio.to_thread
    _sightings: Sightings = field(default_factory=Sightings, init=False)
    _told_of: tuple[CycleResult, _Shortfalls] | None = field(default=None, init=False)

    async def compose(self) -> wire.ShardReport:
        """The report as of now, but for answers to instructions."""
        held, now_seconds = self.estate.held, self.clock.monotonic_seconds()
        seen = self.inventory.seen_domains()
        out_of_domain_machines, out_of_domain_omitted = report.out_of_domain_machines(
            self.inventory
        )
        made = wire.ShardReport(
            shard_id=self.settings.shard_id,
            cycle=self.cycle.count,
            timestamp_unix_nanos=int(self.clock.unix_seconds() * _NANOS),
            shard_epoch=self.epoch,
            shard_address=self.address,
            providers=self._providers(),
            unowned_domains=self._sightings.due(seen, held.domains, now_seconds),
            owned_domains=len(held.domains),
            seen_term=held.newest.term,
            seen_sequence=held.newest.sequence,
            out_of_domain_machines=out_of_domain_machines,
            out_of_domain_omitted=out_of_domain_omitted,
            removals=self._removals(),
            domain_keys=self.settings.domain_keys,
        )
        metrics.shard_owned_domains.set(len(held.domains))
        thought = self.cycle.latest
        if thought is not None:
            there = sum(counts.total() for counts in seen.values())
            metrics.shard_foreign_machines.set(there - len(thought.view.fleet))
            made.summary.CopyFrom(report.summary(thought.view.fleet))
            made.splits.extend(report.splits(thought, self.inventory, self.settings.domain_keys))
            rows, made.shortfalls_omitted = await self._shortfalls(thought)
            made.shortfalls.extend(rows)
        return made

    def heard(self, told: wire.ShardReport, term: int) -> None:
        """The leader of `term` has this report."""
        self._sightings.told(told.unowned_domains, term, self.clock.monotonic_seconds())
        ended = [each.cluster_id for each in told.removals if not each.machines_left]
        try:
            self.estate.drop_clusters(ended)
        except BigFleetError as error:  # the next report says it again
            _log.error("the end of a removal is not kept", extra={"why": str(error)})
        else:
            self.cycle.removals.end(ended)

    def _removals(self) -> Iterator[wire.ClusterRemoval]:
        left = sorted(self.cycle.removals.left().items(), key=itemgetter(1))
        for cluster, machines in left[:_MOST_REMOVALS]:
            yield wire.ClusterRemoval(cluster_id=cluster, machines_left=machines)

    async def _shortfalls(self, thought: CycleResult) -> _Shortfalls:
        """Worked out once for each decision."""
        if self._told_of is None or self._told_of[0] is not thought:
            self._told_of = (thought, await self.offload(partial(report.shortfalls, thought)))
        return self._told_of[1]

    def _providers(self) -> Iterator[wire.ProviderEntry]:
        """What this shard's machines come from, region by region."""
        name, address = self.inventory.provider_name, self.settings.provider_address
        thought = self.cycle.latest
        flavours = thought.view.fleet.flavours if thought and name else ()
        for region in sorted({region_of(flavour.labels) for flavour in flavours})[:_MOST_REGIONS]:
            yield wire.ProviderEntry(name=name, address=address, region=region)
