"""Composes the shard's report; explanations of shortfalls are computed in a thread."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.domain import Domain
from bigfleet.model.errors import BigFleetError
from bigfleet.model.machine import MachineState
from bigfleet.model.report_limits import DRAIN_AGE_CYCLES, MAX_REMOVALS
from bigfleet.observe import metrics
from bigfleet.ports.clock import Clock, to_nanos
from bigfleet.ports.ownership import QuotaKey
from bigfleet.services.shard.config import ShardConfig
from bigfleet.services.shard.coordination import report
from bigfleet.services.shard.coordination.domain_observations import DomainObservations
from bigfleet.services.shard.coordination.drainable_domains import (
    OthersBusyMachines,
)
from bigfleet.services.shard.coordination.withheld_machines import WithheldMachines
from bigfleet.services.shard.decide.compute import CycleResult
from bigfleet.services.shard.decide.cycle import Cycle
from bigfleet.services.shard.decide.quotas import Quotas
from bigfleet.services.shard.execute.execution import EXECUTE_SECONDS
from bigfleet.services.shard.fleet.backoff import Offering
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.services.shard.fleet.ownership import Ownership
from bigfleet.services.shard.records.views import FreeMachines

_LOG = logging.getLogger(__name__)
_MAX_REGIONS = 100
_Shortfalls = tuple[list[wire.Shortfall], int]


@dataclass
class Reporter:
    """`address` is this shard's address for operators, set once the shard listens. `offload` runs
    long work outside the event loop.
    """

    config: ShardConfig
    epoch: int
    clock: Clock
    ownership: Ownership
    inventory: Inventory
    cycle: Cycle
    address: str = ""
    offload: Callable[[Callable[[], _Shortfalls]], Awaitable[_Shortfalls]] = asyncio.to_thread
    _observations: DomainObservations = field(init=False)
    _cached_shortfalls: tuple[CycleResult, _Shortfalls] | None = field(default=None, init=False)
    _cached_listed: tuple[object, object, Counter[QuotaKey | None]] = field(
        default=((), {}, Counter()), init=False
    )
    _began_seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        """Start counting how long ago a former life of this shard can have sent its last order."""
        self._observations = DomainObservations(self.config.shard_id)
        self._began_seconds = self.clock.monotonic_seconds()

    @property
    def former_orders_may_arrive(self) -> bool:
        """Whether an order that a former life of this shard sent may still reach its provider. No
        part of this life knows which.
        """
        age_seconds = self.clock.monotonic_seconds() - self._began_seconds
        return self.epoch > 1 and age_seconds < EXECUTE_SECONDS

    async def compose(self) -> wire.ShardReport:
        """The present report, without acknowledgements."""
        record, now_seconds = self.ownership.record, self.clock.monotonic_seconds()
        seen = self.inventory.observed_domains()
        out_of_domain_machines, out_of_domain_omitted = report.out_of_domain_machines(
            self.inventory
        )
        made = wire.ShardReport(
            shard_id=self.config.shard_id,
            cycle=self.cycle.count,
            timestamp_unix_nanos=to_nanos(self.clock.unix_seconds()),
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
            others = self.inventory.count_listed() - len(result.inputs.fleet)
            metrics.shard_machines_of_other_shards.set(others)
            made.summary.CopyFrom(report.summary(result.inputs.fleet))
            made.splits.extend(report.splits(result, self.inventory, self.config.domain_keys))
            made.movable_domains.extend(self._movable_domains(result, seen))
            made.quotas.extend(self._quota_uses(result))
            rows, made.shortfalls_omitted = await self._shortfalls(result)
            made.shortfalls.extend(rows)
        return made

    def acknowledged(self, sent: wire.ShardReport, term: int) -> None:
        """Record that the leader of `term` has received this report."""
        self._observations.acknowledged(sent.unowned_domains, term, self.clock.monotonic_seconds())
        ended = [each.cluster_id for each in sent.removals if not each.machines_left]
        try:
            self.ownership.drop_clusters(ended)
        except BigFleetError as error:  # retried with the next report
            _LOG.error("end of a removal cannot be saved", extra={"why": str(error)})
        else:
            self.cycle.removals.end(ended)

    def _removals(self) -> Iterator[wire.ClusterRemoval]:
        left = sorted(self.cycle.removals.left().items(), key=itemgetter(1))
        for cluster, machines in left[:MAX_REMOVALS]:
            yield wire.ClusterRemoval(cluster_id=cluster, machines_left=machines)

    def _movable_domains(
        self, result: CycleResult, seen: Mapping[Domain, Counter[str]]
    ) -> list[wire.MovableDomain]:
        """Domains that could be another shard's. None of a gang, which may need machines there."""
        profiles = report.profiles_of(result.demand)
        gangs = {each.fingerprint for each in profiles if each.same_key}
        kept = self.inventory.domains_serving(gangs)
        own = {
            domain: seen[domain]
            for domain in self.ownership.record.domains
            if domain in seen and domain not in kept
        }
        return report.movable_domains(own, self.inventory.machines_in_use())

    async def _shortfalls(self, result: CycleResult) -> _Shortfalls:
        """The shortfalls of a result, computed once."""
        if self._cached_shortfalls is None or self._cached_shortfalls[0] is not result:
            self._cached_shortfalls = (
                result,
                await self.offload(
                    partial(
                        report.shortfalls,
                        result,
                        list(self._free_of_others(result)),
                        self._withheld(result),
                        self._busy_of_others(result),
                    )
                ),
            )
        return self._cached_shortfalls[1]

    def _free_of_others(self, result: CycleResult) -> Iterator[FreeMachines]:
        """Other shards' free machines; no speculative ones that this shard could not purchase."""
        if not result.decision.shortfalls:
            return
        quotas = self._quotas(result)
        for each in self.inventory.free(owned=False):
            unavailable = Offering.of(each.flavour) in result.inputs.unavailable
            if unavailable or quotas.is_exhausted(each.flavour):
                yield each._replace(speculative=0)
            else:
                yield each

    def _busy_of_others(self, result: CycleResult) -> OthersBusyMachines | None:
        """What could be drained for this shard, once a shortfall is old enough."""
        ages = (short.age_cycles for short in result.decision.shortfalls)
        if max(ages, default=0) <= DRAIN_AGE_CYCLES:
            return None
        flavours = tuple(result.fleet.flavours)
        return OthersBusyMachines(self.inventory.busy_of_other_shards(), flavours)

    def _withheld(self, result: CycleResult) -> WithheldMachines:
        """The machines that this shard may not purchase, because their quota is used up."""
        quotas, inventory = self._quotas(result), self.inventory
        withheld = [
            each
            for owned in ((True, False) if result.decision.shortfalls else ())
            for each in inventory.free(owned=owned)
            if each.speculative
            and quotas.is_exhausted(each.flavour)
            and Offering.of(each.flavour) not in result.inputs.unavailable
        ]
        return WithheldMachines(inventory.provider_names, withheld, result.fleet.flavours)

    def _quota_uses(self, result: CycleResult) -> Iterator[wire.QuotaUse]:
        """What is used of each slice; an order whose answer was lost may still arrive. Nothing is
        known while orders of a former life may.
        """
        if self.former_orders_may_arrive:
            return
        lost_since = self.clock.monotonic_seconds() - EXECUTE_SECONDS
        quotas = self._quotas(result)
        lost = Counter(
            quotas.key_of(view.machine_class.flavour)
            for name in self.cycle.orders.may_arrive(lost_since)
            if (view := self.inventory.view(name)) and view.state is MachineState.SPECULATIVE
        )
        listed = self._listed(quotas)
        for use in quotas.uses(self.cycle.order_issuer.issued(result)):
            yield wire.QuotaUse(
                provider=use.key.provider,
                region=use.key.region,
                machines=use.machines,
                held=use.held + lost[use.key],
                listed=listed[use.key],
            )

    def _listed(self, quotas: Quotas) -> Counter[QuotaKey | None]:
        """The purchased machines of each quota, whichever shard has them."""
        purchased, slices = self.inventory.purchased(), quotas.slices
        if self._cached_listed[0] is not purchased or self._cached_listed[1] != slices:
            found: Counter[QuotaKey | None] = Counter()
            for flavour, machines in purchased:
                found[quotas.key_of(flavour)] += machines
            self._cached_listed = purchased, slices, found
        return self._cached_listed[2]

    def _quotas(self, result: CycleResult) -> Quotas:
        names = self.inventory.provider_names
        return Quotas(result.inputs.fleet, names, self.ownership.record.slices)

    def _providers(self) -> Iterator[wire.ProviderEntry]:
        """The providers of this shard's machines, once per region. Of two with one name, as with
        several processes of one provider, the first is listed.
        """
        result, names = self.cycle.latest, self.inventory.provider_names
        if result is None:
            return
        addresses: dict[tuple[str, str], str] = {}
        for address, link in self.cycle.providers.by_address.items():
            regions = report.regions_of(result.inputs.fleet.flavours).get(link.key, ())
            if name := names.get(link.key):
                for region in regions[:_MAX_REGIONS]:
                    addresses.setdefault((name, region), address)
        for (name, region), address in addresses.items():
            yield wire.ProviderEntry(name=name, address=address, region=region)
