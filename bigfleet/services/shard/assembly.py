"""A shard's parts, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from bigfleet.api.v1alpha1.shard_pb2 import DisruptionReport, ShardMessage
from bigfleet.engine.decide import decide
from bigfleet.ports.clock import Clock
from bigfleet.ports.ownership import QuotaKey
from bigfleet.ports.provider import CapacityProvider
from bigfleet.ports.store import DemandStore, EvictionStore, RemovalStore
from bigfleet.services.shard import updates
from bigfleet.services.shard.actuation import Actuation
from bigfleet.services.shard.arrivals import Arrivals
from bigfleet.services.shard.cluster_removal import ClusterRemoval
from bigfleet.services.shard.coordination.estate import Estate
from bigfleet.services.shard.coordination.parts import Coordination, Ties, coordinate
from bigfleet.services.shard.coordination.reporter import Reporter
from bigfleet.services.shard.cycle import Cycle
from bigfleet.services.shard.disruptions import Disruptions
from bigfleet.services.shard.evictions import Evictions
from bigfleet.services.shard.execution import Execution
from bigfleet.services.shard.failures import Failures
from bigfleet.services.shard.fences import Fences
from bigfleet.services.shard.hints import Hints
from bigfleet.services.shard.interning import Interned
from bigfleet.services.shard.inventory import Inventory
from bigfleet.services.shard.journal import Journal
from bigfleet.services.shard.machine_inspection import MachineInspection
from bigfleet.services.shard.needs import NeedsTable
from bigfleet.services.shard.ordering import Ordering
from bigfleet.services.shard.orders import Orders
from bigfleet.services.shard.reconciler import Reconciler
from bigfleet.services.shard.removals import Removals
from bigfleet.services.shard.rollup_guard import RollUpGuard
from bigfleet.services.shard.rollups import RollUps
from bigfleet.services.shard.sessions import Sessions
from bigfleet.services.shard.settings import Settings
from bigfleet.services.shard.statuses import Statuses
from bigfleet.services.shard.suspensions import Suspensions
from bigfleet.services.shard.territory import Territory


@dataclass(frozen=True)
class Kept:
    """What a shard has on its disk, beside its epoch and what a coordinator told it. Without
    `demand` only the machines of a cluster say after a restart how much it asked for.
    """

    evictions: EvictionStore
    removals: RemovalStore
    demand: DemandStore | None = None


@dataclass(frozen=True)
class Shard:
    """The parts of one shard, wired together; nothing happens until `run`."""

    epoch: int
    sessions: Sessions
    inventory: Inventory
    needs: NeedsTable
    cycle: Cycle
    actuation: Actuation
    machines: MachineInspection
    coordination: Coordination | None = None

    def removal(self) -> ClusterRemoval:
        """What takes clusters out of the fleet."""
        tied = self.coordination
        if tied is None:
            return ClusterRemoval(self.cycle, None, lambda _: False)
        return ClusterRemoval(self.cycle, tied.reception, lambda name: name in tied.estate.clusters)

    async def run(self) -> None:
        """Decide and act until cancelled."""
        async with asyncio.TaskGroup() as parts:
            if self.coordination is not None:
                parts.create_task(self.coordination.link.run())
            parts.create_task(self.cycle.run())
            parts.create_task(self.actuation.run())


@dataclass(frozen=True)
class _Books:
    """What a shard knows: its machines, what is needed of it, and what it has begun."""

    inventory: Inventory
    needs: NeedsTable
    hints: Hints
    statuses: Statuses
    arrivals: Arrivals
    disruptions: Disruptions
    orders: Orders
    evictions: Evictions
    failures: Failures
    estate: Estate | None

    def slices(self) -> Mapping[QuotaKey, int]:
        """How much of each quota is this shard's; nothing where quotas are not shared."""
        return self.estate.held.slices if self.estate else {}


def assemble(
    settings: Settings,
    provider: CapacityProvider,
    clock: Clock,
    journal: Journal,
    epoch: int,
    kept: Kept,
    ties: Ties | None = None,
) -> Shard:
    """All parts of a shard that is in its `epoch`; without `ties` everything is its own."""
    woken = asyncio.Event()
    books = _books(settings, kept, ties)
    sessions = _sessions(epoch, books, RollUps(books.needs, journal, clock, woken.set), clock)
    execution = _execution(settings, provider, clock, journal, epoch, books, sessions)
    actuation = _actuation(settings, execution, books.failures, clock, woken)
    cycle = Cycle(
        decide=decide,
        settings=settings,
        clock=clock,
        needs=books.needs,
        inventory=books.inventory,
        orders=books.orders,
        reconciler=execution.reconciler,
        actuation=actuation,
        ordering=_ordering(settings, books, sessions, actuation, journal),
        sessions=sessions,
        hints=books.hints,
        journal=journal,
        evictions=books.evictions,
        disruptions=books.disruptions,
        statuses=books.statuses,
        arrivals=books.arrivals,
        failures=books.failures,
        suspensions=Suspensions(sessions, books.failures, settings.cluster_absence_seconds),
        removals=Removals(kept.removals, is_reported=ties is not None),
        woken=woken,
        slices=books.slices,
    )
    return _shard(epoch, books, cycle, ties)


def _shard(epoch: int, books: _Books, cycle: Cycle, ties: Ties | None) -> Shard:
    machines = _inspection(books, cycle.journal)
    inventory, needs, actuation = books.inventory, books.needs, cycle.actuation
    shard = Shard(epoch, cycle.sessions, inventory, needs, cycle, actuation, machines)
    return _tied(shard, ties, books.estate) if ties and books.estate else shard


def _execution(
    settings: Settings,
    provider: CapacityProvider,
    clock: Clock,
    journal: Journal,
    epoch: int,
    books: _Books,
    sessions: Sessions,
) -> Execution:
    inventory, orders, failures = books.inventory, books.orders, books.failures
    reconciler = Reconciler(provider, inventory, orders, sessions, journal, clock, failures)
    return Execution(
        provider=provider,
        sessions=sessions,
        inventory=inventory,
        orders=orders,
        reconciler=reconciler,
        evictions=books.evictions,
        disruptions=books.disruptions,
        fences=Fences(settings.shard_id, epoch),
        journal=journal,
        provider_slots=asyncio.Semaphore(settings.execute_concurrency),
    )


def _ordering(
    settings: Settings, books: _Books, sessions: Sessions, actuation: Actuation, journal: Journal
) -> Ordering:
    paused = settings.actuation_paused
    return Ordering(books.inventory, sessions, actuation, journal, books.slices, paused=paused)


def _inspection(books: _Books, journal: Journal) -> MachineInspection:
    limits = books.needs.limits
    return MachineInspection(books.inventory, books.orders, books.evictions, journal, limits)


def _books(settings: Settings, kept: Kept, ties: Ties | None) -> _Books:
    clusters: Interned[str] = Interned()
    evictions = Evictions(kept.evictions)
    estate = Estate(ties.holdings) if ties else None
    inventory = Inventory(clusters, evictions.need_of, Territory(estate, settings.domain_keys))

    def machines_of(cluster: str) -> int:
        return len(inventory.bound_to(cluster))

    return _Books(
        inventory=inventory,
        needs=NeedsTable(clusters, RollUpGuard(kept.demand, machines_of)),
        hints=Hints(),
        statuses=Statuses(),
        arrivals=Arrivals(),
        disruptions=Disruptions(
            settings.engine.reclaim_hold_seconds,
            settings.batch_wait_seconds,
            settings.cycle_seconds,
        ),
        orders=Orders(),
        evictions=evictions,
        failures=Failures(),
        estate=estate,
    )


def _tied(shard: Shard, ties: Ties, estate: Estate) -> Shard:
    cycle, sessions = shard.cycle, shard.sessions
    reporter = Reporter(cycle.settings, shard.epoch, cycle.clock, estate, shard.inventory, cycle)
    coordination = coordinate(ties, reporter, shard.actuation, sessions, cycle.orders)
    sessions.term = lambda: coordination.link.term
    return replace(shard, coordination=coordination)


def _sessions(epoch: int, books: _Books, rollups: RollUps, clock: Clock) -> Sessions:
    def over(cluster: str) -> None:
        books.needs.forget_held(cluster)
        books.hints.forget(cluster)
        books.statuses.forget(cluster)
        books.arrivals.forget(cluster)
        books.disruptions.forget(cluster)

    def take_disruptions(cluster: str, report: DisruptionReport) -> None:
        def is_its(machine_id: str) -> bool:
            known = books.inventory.view(machine_id)
            return known is not None and known.cluster == cluster

        books.disruptions.take(cluster, report, clock.monotonic_seconds(), is_its)

    def replay(cluster: str) -> Iterator[ShardMessage]:
        return updates.of_cluster(books.inventory, cluster)

    return Sessions(epoch, rollups.take, rollups.miss, replay, over, take_disruptions)


def _actuation(
    settings: Settings,
    execution: Execution,
    failures: Failures,
    clock: Clock,
    woken: asyncio.Event,
) -> Actuation:
    return Actuation(
        execution,
        execution.orders,
        execution.journal,
        clock,
        settings.execute_concurrency,
        failures,
        done=woken.set,
        doubt=execution.reconciler.doubt,
    )
