"""Wires the parts of a shard."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from bigfleet.api.v1alpha1.shard_pb2 import DisruptionReport, ShardMessage
from bigfleet.engine.decide import decide
from bigfleet.ports.clock import Clock
from bigfleet.ports.ownership import QuotaKey
from bigfleet.ports.provider import CapacityProvider
from bigfleet.ports.store import ShardStores
from bigfleet.services.shard.admin import ClusterRemover
from bigfleet.services.shard.config import ShardConfig
from bigfleet.services.shard.coordination.assembly import Coordination, CoordinatorPorts, coordinate
from bigfleet.services.shard.coordination.reporter import Reporter
from bigfleet.services.shard.decide.cycle import Cycle
from bigfleet.services.shard.decide.demand_status import DemandStatuses
from bigfleet.services.shard.decide.hints import CapacityHints
from bigfleet.services.shard.decide.incoming import IncomingMachines
from bigfleet.services.shard.decide.order_issuer import OrderIssuer
from bigfleet.services.shard.decide.suspensions import Suspensions
from bigfleet.services.shard.demand.needs import NeedsTable
from bigfleet.services.shard.demand.rollup_guard import RollUpGuard
from bigfleet.services.shard.demand.rollup_receiver import RollUpReceiver
from bigfleet.services.shard.execute.actuation import Actuation
from bigfleet.services.shard.execute.evictions import Evictions
from bigfleet.services.shard.execute.execution import Execution
from bigfleet.services.shard.execute.providers import ProviderLink, Providers, side_by_side
from bigfleet.services.shard.execute.reconciler import Reconciler
from bigfleet.services.shard.execute.removals import PendingRemovals
from bigfleet.services.shard.fleet.backoff import FailureBackOff
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.services.shard.fleet.last_inventory import InventorySaver
from bigfleet.services.shard.fleet.ownership import Ownership
from bigfleet.services.shard.fleet.shard_filter import ShardFilter
from bigfleet.services.shard.inspect.machine_views import MachineInspection
from bigfleet.services.shard.records.interning import Numbers
from bigfleet.services.shard.records.journal import Journal
from bigfleet.services.shard.records.orders import Orders
from bigfleet.services.shard.sessions import updates
from bigfleet.services.shard.sessions.disruption_costs import DisruptionCosts
from bigfleet.services.shard.sessions.registry import Sessions


@dataclass(frozen=True)
class Shard:
    """The parts of one shard; nothing happens until `run`."""

    epoch: int
    sessions: Sessions
    inventory: Inventory
    needs: NeedsTable
    cycle: Cycle
    actuation: Actuation
    machines: MachineInspection
    coordination: Coordination | None = None
    saver: InventorySaver | None = None

    def remover(self) -> ClusterRemover:
        """The remover of clusters for this shard."""
        coordination = self.coordination
        if coordination is None:
            return ClusterRemover(self.cycle, None, lambda _: False)
        return ClusterRemover(
            self.cycle, coordination.router, lambda name: name in coordination.ownership.clusters
        )

    async def run(self) -> None:
        """Run decision loop, actuation and coordinator link until cancelled."""
        try:
            async with asyncio.TaskGroup() as parts:
                if self.coordination is not None:
                    parts.create_task(self.coordination.link.run())
                parts.create_task(self.cycle.run())
                parts.create_task(self.actuation.run())
                if self.saver is not None:
                    parts.create_task(self.saver.run())
        finally:
            await self.cycle.providers.close()


@dataclass(frozen=True)
class _State:
    """A shard's state: machines, needs, orders, evictions, ownership."""

    inventory: Inventory
    needs: NeedsTable
    hints: CapacityHints
    statuses: DemandStatuses
    incoming: IncomingMachines
    disruptions: DisruptionCosts
    orders: Orders
    evictions: Evictions
    failures: FailureBackOff
    ownership: Ownership | None

    def slices(self) -> Mapping[QuotaKey, int]:
        """This shard's slice of each quota; empty without a coordinator."""
        return self.ownership.record.slices if self.ownership else {}


def assemble(
    config: ShardConfig,
    provider_clients: Mapping[str, CapacityProvider],
    clock: Clock,
    journal: Journal,
    epoch: int,
    stores: ShardStores,
    coordinator_ports: CoordinatorPorts | None = None,
) -> Shard:
    """Wire a shard with this `epoch` and `provider_clients` by address; without
    `coordinator_ports` it owns everything.
    """
    woken = asyncio.Event()
    state = _state(config, stores, coordinator_ports)
    sessions = _sessions(
        epoch, state, RollUpReceiver(state.needs, journal, clock, woken.set), clock
    )
    inventory, orders, failures = state.inventory, state.orders, state.failures

    def reconcile(key: str, client: CapacityProvider) -> Reconciler:
        return Reconciler(key, client, inventory, orders, sessions, journal, clock, failures)

    links = side_by_side(config, epoch, provider_clients, reconcile)
    providers = _providers(links, state, sessions, clock, woken)
    execution = _execution(providers, journal, state, sessions)
    absence_seconds = config.cluster_absence_seconds
    actuation = _actuation(config, execution, state.failures, clock, woken)
    cycle = Cycle(
        decide=decide,
        config=config,
        clock=clock,
        needs=state.needs,
        inventory=state.inventory,
        orders=state.orders,
        providers=providers,
        actuation=actuation,
        order_issuer=_order_issuer(config, state, sessions, actuation, journal),
        sessions=sessions,
        hints=state.hints,
        journal=journal,
        evictions=state.evictions,
        disruptions=state.disruptions,
        statuses=state.statuses,
        incoming=state.incoming,
        failures=state.failures,
        suspensions=Suspensions(sessions, failures, absence_seconds, providers.may_be_unlisted),
        removals=PendingRemovals(stores.removals, is_reported=coordinator_ports is not None),
        woken=woken,
        slices=state.slices,
    )
    saver = None
    if stores.inventory is not None:
        saver = InventorySaver(stores.inventory, inventory, providers.all_listed)
    return _shard(epoch, state, cycle, saver, coordinator_ports)


def _shard(
    epoch: int,
    state: _State,
    cycle: Cycle,
    saver: InventorySaver | None,
    coordinator_ports: CoordinatorPorts | None,
) -> Shard:
    machines = _inspection(state, cycle.journal)
    inventory, needs, actuation = state.inventory, state.needs, cycle.actuation
    sessions = cycle.sessions
    shard = Shard(epoch, sessions, inventory, needs, cycle, actuation, machines, saver=saver)
    return (
        _with_coordination(shard, coordinator_ports, state.ownership)
        if coordinator_ports and state.ownership
        else shard
    )


def _providers(
    links: Iterable[ProviderLink],
    state: _State,
    sessions: Sessions,
    clock: Clock,
    woken: asyncio.Event,
) -> Providers:
    of_asked = partial(state.incoming.answer, state.inventory, state.orders)

    def answer() -> None:
        sessions.answer_inquiries(of_asked)

    return Providers([*links], state.inventory, clock, answer, woken.set)


def _execution(
    providers: Providers, journal: Journal, state: _State, sessions: Sessions
) -> Execution:
    return Execution(
        providers=providers,
        sessions=sessions,
        inventory=state.inventory,
        orders=state.orders,
        evictions=state.evictions,
        disruptions=state.disruptions,
        journal=journal,
    )


def _order_issuer(
    config: ShardConfig, state: _State, sessions: Sessions, actuation: Actuation, journal: Journal
) -> OrderIssuer:
    paused = config.actuation_paused
    return OrderIssuer(state.inventory, sessions, actuation, journal, state.slices, paused=paused)


def _inspection(state: _State, journal: Journal) -> MachineInspection:
    limits = state.needs.limits
    return MachineInspection(state.inventory, state.orders, state.evictions, journal, limits)


def _state(
    config: ShardConfig, stores: ShardStores, coordinator_ports: CoordinatorPorts | None
) -> _State:
    numbers = Numbers()
    evictions = Evictions(stores.evictions)
    ownership = Ownership(coordinator_ports.ownership_store) if coordinator_ports else None
    inventory = Inventory(numbers, evictions.need_of, ShardFilter(ownership, config.domain_keys))

    def machines_of(cluster: str) -> int:
        return len(inventory.bound_to(cluster))

    return _State(
        inventory=inventory,
        needs=NeedsTable(numbers, RollUpGuard(stores.demand, machines_of)),
        hints=CapacityHints(),
        statuses=DemandStatuses(),
        incoming=IncomingMachines(),
        disruptions=DisruptionCosts(
            config.engine.reclaim_hold_seconds,
            config.batch_wait_seconds,
            config.cycle_seconds,
        ),
        orders=Orders(),
        evictions=evictions,
        failures=FailureBackOff(),
        ownership=ownership,
    )


def _with_coordination(
    shard: Shard, coordinator_ports: CoordinatorPorts, ownership: Ownership
) -> Shard:
    cycle, sessions = shard.cycle, shard.sessions
    reporter = Reporter(cycle.config, shard.epoch, cycle.clock, ownership, shard.inventory, cycle)
    coordination = coordinate(coordinator_ports, reporter, shard.actuation, sessions, cycle.orders)
    sessions.term = lambda: coordination.link.term
    return replace(shard, coordination=coordination)


def _sessions(epoch: int, state: _State, receiver: RollUpReceiver, clock: Clock) -> Sessions:
    def on_session_end(cluster: str) -> None:
        state.needs.forget_held(cluster)
        state.hints.forget(cluster)
        state.statuses.forget(cluster)
        state.incoming.forget(cluster)
        state.disruptions.forget(cluster)

    def take_disruptions(cluster: str, report: DisruptionReport) -> None:
        def is_its(machine_id: str) -> bool:
            known = state.inventory.view(machine_id)
            return known is not None and known.cluster == cluster

        state.disruptions.take(cluster, report, clock.monotonic_seconds(), is_its)

    def replay(cluster: str) -> Iterator[ShardMessage]:
        return updates.of_cluster(state.inventory, cluster)

    return Sessions(
        epoch, receiver.take, receiver.note_too_large, replay, on_session_end, take_disruptions
    )


def _actuation(
    config: ShardConfig,
    execution: Execution,
    failures: FailureBackOff,
    clock: Clock,
    woken: asyncio.Event,
) -> Actuation:
    return Actuation(
        execution,
        execution.orders,
        execution.journal,
        clock,
        config.execute_concurrency,
        failures,
        on_done=woken.set,
        on_unknown_machine=execution.providers.request_full_listings,
    )
