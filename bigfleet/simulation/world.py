"""Shards, their coordinator, a provider and clusters, connected as in production."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bigfleet.api.v1alpha1.shard_pb2 import Redirect
from bigfleet.engine.decision import ActionType
from bigfleet.model.errors import Unavailable
from bigfleet.model.machine import TRANSITIONAL, Machine, MachineEvent, MachineState
from bigfleet.ports.provider import Fence
from bigfleet.services.shard.assembly import Shard
from bigfleet.services.shard.decide.compute import CycleResult
from bigfleet.services.shard.sessions.registry import Sessions
from bigfleet.simulation.cluster.cluster import SimulatedCluster
from bigfleet.simulation.cluster.operator import SimulatedOperator
from bigfleet.simulation.hosts.coordinators import CoordinatorLink, Coordinators
from bigfleet.simulation.hosts.provider import SimulatedHosts, SimulatedProvider
from bigfleet.simulation.hosts.shard_host import RESTART_SECONDS, ShardEnvironment, ShardHost
from bigfleet.simulation.invariants.limits import ImposedLimits
from bigfleet.simulation.invariants.ownership import Ownership
from bigfleet.simulation.invariants.purchases import Purchases
from bigfleet.simulation.invariants.safety import Safety
from bigfleet.simulation.runtime.disk import SimulatedFiles
from bigfleet.simulation.runtime.faults import FaultInjector, FaultRates
from bigfleet.simulation.runtime.loop import VirtualClock
from bigfleet.simulation.spec import WorldSpec
from bigfleet.simulation.story import Story


@dataclass(frozen=True)
class CycleSummary:
    """One cycle's decision in numbers; `at_seconds` is Unix time."""

    at_seconds: float
    actions: Mapping[ActionType, int]
    shortfalls: int


class World:
    """A running world; `running_world` starts and stops it. `clock` is correct; the clocks of the
    shards' hosts and of the provider may be wrong. `shard`, `files` and `shard_clock` are those of
    the first shard.
    """

    def __init__(self, spec: WorldSpec, directory: Path) -> None:
        self.spec = spec
        self.clock, self.provider_clock = VirtualClock(), VirtualClock()
        self.faults = FaultRates()
        self.injector = FaultInjector(spec.seed, self.faults, spec.delays, spec.broken)
        self.story = Story(self.clock)
        self.clusters = {name: self._cluster(name) for name in spec.clusters}
        hosts = SimulatedHosts(self.clusters, self.injector)
        machines = directory / "provider"
        self.provider = SimulatedProvider(machines, hosts, self.injector, self.provider_clock)
        self.cycles: list[CycleSummary] = []
        self.safety = Safety(spec.engine)
        self.purchases = Purchases(self.clusters, self.injector)
        self.provider.crashed = lambda: self.spawn(self._restart_provider())
        self.provider.on_submitted = self._on_submitted
        self.coordinators: Coordinators | None = None
        if spec.coordinators:
            expected = len(spec.shards) - len(spec.late_shards)
            self.coordinators = Coordinators(spec.coordinators, self.injector, expected)
            self.coordinators.ended = self.safety.check_task
        self.coordinator_links: dict[str, CoordinatorLink] = {}
        self.hosts = {name: self._host(name, directory) for name in spec.shards}
        self.ownership = Ownership(self.hosts)
        self.limits = ImposedLimits(self.hosts, self.clock.unix_seconds)
        self.operators = {name: self._operator(name) for name in spec.clusters}
        if spec.broken.absent_operator:
            self.operators[spec.broken.absent_operator].online = False
        self._healed = False
        self._tasks: list[asyncio.Task[None]] = []

    def _cluster(self, name: str) -> SimulatedCluster:
        spec = self.spec
        cluster = SimulatedCluster(
            name,
            self.clock.unix_seconds,
            looks_ahead=spec.scheduler_looks_ahead,
            daemons=spec.daemons,
            request_additional=spec.request_additional,
        )

        def record(pods: int, pending: int) -> None:
            self.story.record("pods-bound", cluster=name, pods=pods, pending=pending)

        cluster.on_bound = record
        return cluster

    def _host(self, name: str, directory: Path) -> ShardHost:
        spec = self.spec
        environment = ShardEnvironment(
            provider=self.provider,
            injector=self.injector,
            engine=spec.engine,
            cycle_seconds=spec.cycle_seconds,
            spawn=self.spawn,
            ended=self.safety.check_task,
            result=partial(self._check_cycle, name),
            ceilings=lambda: self.limits.ceilings,
        )
        if self.coordinators is None:
            return ShardHost(name, directory, environment, self.story)
        link = self.coordinator_links[name] = CoordinatorLink(self.coordinators, self.injector)
        return ShardHost(name, directory / name, environment, self.story.shard_journal(name), link)

    def _operator(self, cluster: str) -> SimulatedOperator:
        """Each operator gets the shards' addresses in another order."""
        addresses = [host.address for host in self.hosts.values()]
        first = [*self.clusters].index(cluster) % len(addresses)
        order = [*addresses[first:], *addresses[:first]]
        return SimulatedOperator(
            self.clusters[cluster], self.injector, self.clock, self._open_session, order
        )

    async def _open_session(self, address: str, cluster: str) -> Sessions | Redirect:
        for host in self.hosts.values():
            if host.address == address:
                return await host.open_session(cluster)
        raise Unavailable(f"nothing listens at {address}")

    def start(self) -> None:
        """Start everything."""
        self.start_provider()
        if self.coordinators is not None:
            self.coordinators.start_all()
        for name, host in self.hosts.items():
            if name not in self.spec.late_shards:
                host.start()
        runs = [cluster.run() for cluster in self.clusters.values()]
        runs += [operator.run() for operator in self.operators.values()]
        for run in runs:
            task = asyncio.create_task(run)
            task.add_done_callback(self.safety.check_task)
            self._tasks.append(task)

    async def stop(self) -> None:
        """Stop everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for host in self.hosts.values():
            await host.kill()
        if self.coordinators is not None:
            await self.coordinators.stop()
        await self.provider.stop()

    def start_provider(self) -> None:
        """Start the provider with its stored state."""
        if self.provider.running:
            return
        spec = self.spec
        hours = 0.0 if self.healthy else spec.spot_hours_per_second
        self.provider.start(spec.machines, spec.latencies, spec.seed, hours)

    @property
    def shard(self) -> Shard | None:
        """The first shard; None while it is down."""
        return self._first.shard

    @property
    def files(self) -> SimulatedFiles:
        """The first shard's disk."""
        return self._first.files

    @property
    def shard_clock(self) -> VirtualClock:
        """The clock of the first shard's host."""
        return self._first.clock

    def start_shard(self) -> None:
        """Start the first shard."""
        self._first.start()

    async def kill_shard(self) -> None:
        """Kill the first shard."""
        await self._first.kill()

    @property
    def _first(self) -> ShardHost:
        return next(iter(self.hosts.values()))

    @property
    def healthy(self) -> bool:
        """Whether `heal` was called."""
        return self._healed

    async def heal(self) -> None:
        """End all but the permanent faults: start what is down, stop spot interruptions."""
        self._healed = True
        self.faults.heal()
        await self.provider.stop()
        self.start_provider()
        if self.coordinators is not None:
            self.coordinators.start_all()
        for link in self.coordinator_links.values():
            link.connected = True
        for host in self.hosts.values():
            host.start()
        for name, operator in self.operators.items():
            absent = name == self.spec.broken.absent_operator
            operator.online = not (absent or self.clusters[name].gone)

    async def converges(self, quiet_seconds: float, within_seconds: float) -> bool:
        """Wait until nothing was ordered or moved for `quiet_seconds`; False if that does not
        happen within `within_seconds`.
        """
        begin = unsettled_since = self.clock.unix_seconds()
        while self.clock.unix_seconds() < begin + within_seconds:
            await asyncio.sleep(self.spec.cycle_seconds)
            now = self.clock.unix_seconds()
            unsettled_since = (
                now if self._in_transition() else max(unsettled_since, self.story.last_move_seconds)
            )
            if now - unsettled_since >= quiet_seconds:
                return True
        return False

    def ordered(self, action_type: ActionType, since_cycle: int = 0) -> int:
        """The number of actions of a type decided since `since_cycle`."""
        return sum(summary.actions.get(action_type, 0) for summary in self.cycles[since_cycle:])

    def in_state(self, state: MachineState) -> list[Machine]:
        """The machines in a state according to the provider, by id."""
        machines = self.provider.machines()
        return [machines[name] for name in sorted(machines) if machines[name].state is state]

    async def _restart_provider(self) -> None:
        await self.provider.stop()
        await asyncio.sleep(RESTART_SECONDS)
        self.start_provider()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` beside the world until it stops."""
        task = asyncio.create_task(work)
        task.add_done_callback(self.safety.check_task)
        self._tasks.append(task)

    def _in_transition(self) -> bool:
        return any(m.state in TRANSITIONAL for m in self.provider.machines().values())

    @property
    def removed_shards(self) -> Collection[str]:
        """The shards that have been removed, as far as the coordinator knows now."""
        registry = self.coordinators.registry if self.coordinators is not None else None
        removed = {row.id for row in registry.shards.values() if row.removed} if registry else set()
        return removed | {name for name, host in self.hosts.items() if host.removed}

    def shard_of(self, cluster: str) -> Shard | None:
        """The shard that has a session with the cluster's operator."""
        shards = [host.shard for host in self.hosts.values() if host.shard is not None]
        return next((shard for shard in shards if shard.sessions.of(cluster) is not None), None)

    def _on_submitted(self, fence: Fence, machine: Machine, event: MachineEvent) -> None:
        self.purchases.on_submitted(fence, machine, event, self.clock.unix_seconds())
        self.safety.note(self.limits.excess(fence, machine, event, self.provider.machines()))
        if self.coordinators is not None:
            self.safety.note(self.ownership.trespass(fence, machine, event))

    def _check_cycle(self, shard: str, result: CycleResult) -> None:
        self.safety.check_decision(shard, result)
        self.safety.note(self.limits.check_decision(result))
        if self.coordinators is not None:
            self.limits.note_ownership()
            self.safety.note(self.ownership.conflicts(self.removed_shards))
        if self.provider.running:
            truth = self.provider.machines()
            expected = len(self.spec.machines)
            self.safety.check_machines(truth, self.clusters.values(), expected)
            now_seconds = self.clock.unix_seconds()
            self.safety.note(self.purchases.duplicate_purchases(result, truth, now_seconds))
        counts = Counter(action.type for action in result.decision.actions)
        shortfalls = len(result.decision.shortfalls)
        self.cycles.append(CycleSummary(result.inputs.now_seconds, counts, shortfalls))


@asynccontextmanager
async def running_world(spec: WorldSpec) -> AsyncIterator[World]:
    """Run a world inside the `async with`."""
    logger = logging.getLogger("bigfleet")
    with tempfile.TemporaryDirectory(prefix="bigfleet-simulation-") as directory:
        world = World(spec, Path(directory))
        logger.addHandler(world.safety)
        world.start()
        try:
            yield world
        finally:
            await world.stop()
            logger.removeHandler(world.safety)
