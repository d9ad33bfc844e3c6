"""Shards, their coordinator, one provider, some clusters: wired as in life, on a virtual clock."""

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
from bigfleet.services.shard.sessions import Sessions
from bigfleet.services.shard.thinking import Thought
from bigfleet.simulation.cluster import Cluster
from bigfleet.simulation.coordinators import Coordinators, Line
from bigfleet.simulation.disk import SimulatedFiles
from bigfleet.simulation.faults import Fate, Faults
from bigfleet.simulation.loop import VirtualClock
from bigfleet.simulation.money import Money
from bigfleet.simulation.operator import SimulatedOperator
from bigfleet.simulation.ownership import Ownership
from bigfleet.simulation.plan import Plan
from bigfleet.simulation.provider import SimulatedHosts, SimulatedProvider
from bigfleet.simulation.safety import Safety
from bigfleet.simulation.shard_host import REVIVAL_SECONDS, Around, ShardHost
from bigfleet.simulation.story import Story


@dataclass(frozen=True)
class Cycled:
    """One cycle's decision in numbers; `at_seconds` is Unix time."""

    at_seconds: float
    actions: Mapping[ActionType, int]
    shortfalls: int


class World:
    """A running world; `worlds` opens and closes it. `clock` is right; those of the shards' hosts
    and of the provider's may be set wrong. `shard`, `files` and `shard_clock` are the first's.
    """

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan = plan
        self.clock, self.provider_clock = VirtualClock(), VirtualClock()
        self.faults = Faults()
        self.fate = Fate(plan.seed, self.faults, plan.delays, plan.broken)
        self.story = Story(self.clock)
        self.clusters = {name: self._cluster(name) for name in plan.clusters}
        hosts = SimulatedHosts(self.clusters, self.fate)
        machines = directory / "provider"
        self.provider = SimulatedProvider(machines, hosts, self.fate, self.provider_clock)
        self.cycles: list[Cycled] = []
        self.safety = Safety(plan.engine)
        self.money = Money(self.clusters, self.fate)
        self.provider.crashed = lambda: self._spawn(self._revive_provider())
        self.provider.obeyed = self._obeyed
        self.coordinators: Coordinators | None = None
        if plan.coordinators:
            expected = len(plan.shards) - len(plan.late_shards)
            self.coordinators = Coordinators(plan.coordinators, self.fate, expected)
            self.coordinators.ended = self.safety.look_at_task
        self.lines: dict[str, Line] = {}
        self.hosts = {name: self._host(name, directory) for name in plan.shards}
        self.ownership = Ownership(self.hosts)
        self.operators = {name: self._operator(name) for name in plan.clusters}
        if plan.broken.absent_operator:
            self.operators[plan.broken.absent_operator].online = False
        self._healed = False
        self._tasks: list[asyncio.Task[None]] = []

    def _cluster(self, name: str) -> Cluster:
        plan = self.plan
        return Cluster(
            name,
            self.clock.unix_seconds,
            looks_ahead=plan.scheduler_looks_ahead,
            daemons=plan.daemons,
            request_additional=plan.request_additional,
        )

    def _host(self, name: str, directory: Path) -> ShardHost:
        plan = self.plan
        around = Around(
            provider=self.provider,
            fate=self.fate,
            engine=plan.engine,
            cycle_seconds=plan.cycle_seconds,
            spawn=self._spawn,
            ended=self.safety.look_at_task,
            thought=partial(self._look_at, name),
        )
        if self.coordinators is None:
            return ShardHost(name, directory, around, self.story)
        line = self.lines[name] = Line(self.coordinators, self.fate)
        return ShardHost(name, directory / name, around, self.story.chapter(name), line)

    def _operator(self, cluster: str) -> SimulatedOperator:
        """Operators are told the shards' addresses in different orders."""
        addresses = [host.address for host in self.hosts.values()]
        first = [*self.clusters].index(cluster) % len(addresses)
        order = [*addresses[first:], *addresses[:first]]
        return SimulatedOperator(self.clusters[cluster], self.fate, self.clock, self._greet, order)

    async def _greet(self, address: str, cluster: str) -> Sessions | Redirect:
        for host in self.hosts.values():
            if host.address == address:
                return await host.greet(cluster)
        raise Unavailable(f"nobody is at {address}")

    def start(self) -> None:
        """Everything begins at once."""
        self.start_provider()
        if self.coordinators is not None:
            self.coordinators.start_all()
        for name, host in self.hosts.items():
            if name not in self.plan.late_shards:
                host.start()
        runs = [cluster.run() for cluster in self.clusters.values()]
        runs += [operator.run() for operator in self.operators.values()]
        for run in runs:
            task = asyncio.create_task(run)
            task.add_done_callback(self.safety.look_at_task)
            self._tasks.append(task)

    async def stop(self) -> None:
        """Everything ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for host in self.hosts.values():
            await host.kill()
        if self.coordinators is not None:
            await self.coordinators.stop()
        await self.provider.stop()

    def start_provider(self) -> None:
        """The provider comes up, with what its store remembers."""
        if self.provider.running:
            return
        plan = self.plan
        hours = 0.0 if self.healthy else plan.spot_hours_per_second
        self.provider.start(plan.machines, plan.latencies, plan.seed, hours)

    @property
    def shard(self) -> Shard | None:
        """None while it is down."""
        return self._first.shard

    @property
    def files(self) -> SimulatedFiles:
        """Its disk."""
        return self._first.files

    @property
    def shard_clock(self) -> VirtualClock:
        """Its host's clock."""
        return self._first.clock

    def start_shard(self) -> None:
        """The first shard comes up."""
        self._first.start()

    async def kill_shard(self) -> None:
        """The first shard dies on the spot."""
        await self._first.kill()

    @property
    def _first(self) -> ShardHost:
        return next(iter(self.hosts.values()))

    @property
    def healthy(self) -> bool:
        """Whether the time of faults is over."""
        return self._healed

    async def heal(self) -> None:
        """From now on nothing goes wrong but for what is broken for good: what is down comes up,
        and the spot market rests.
        """
        self._healed = True
        self.faults.heal()
        await self.provider.stop()
        self.start_provider()
        if self.coordinators is not None:
            self.coordinators.start_all()
        for line in self.lines.values():
            line.connected = True
        for host in self.hosts.values():
            host.start()
        for name, operator in self.operators.items():
            operator.online = name != self.plan.broken.absent_operator

    async def comes_to_rest(self, quiet_seconds: float, within_seconds: float) -> bool:
        """Let time pass until for so long nothing was ordered and nothing has moved, from now on
        or later; False if that does not come about.
        """
        begin = restless = self.clock.unix_seconds()
        while self.clock.unix_seconds() < begin + within_seconds:
            await asyncio.sleep(self.plan.cycle_seconds)
            now = self.clock.unix_seconds()
            restless = now if self._under_way() else max(restless, self.story.last_move_seconds)
            if now - restless >= quiet_seconds:
                return True
        return False

    def ordered(self, kind: ActionType, since_cycle: int = 0) -> int:
        """How many actions of a kind were decided from that cycle on."""
        return sum(cycled.actions.get(kind, 0) for cycled in self.cycles[since_cycle:])

    def in_state(self, state: MachineState) -> list[Machine]:
        """The machines that really are in a state, by id."""
        machines = self.provider.machines()
        return [machines[name] for name in sorted(machines) if machines[name].state is state]

    async def _revive_provider(self) -> None:
        await self.provider.stop()
        await asyncio.sleep(REVIVAL_SECONDS)
        self.start_provider()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    def _under_way(self) -> bool:
        return any(m.state in TRANSITIONAL for m in self.provider.machines().values())

    @property
    def removed_shards(self) -> Collection[str]:
        """Those that were taken out of the fleet, as far as the coordinator can tell now."""
        registry = self.coordinators.registry if self.coordinators is not None else None
        barred = {row.id for row in registry.shards.values() if row.removed} if registry else set()
        return barred | {name for name, host in self.hosts.items() if host.removed}

    def shard_of(self, cluster: str) -> Shard | None:
        """The shard with which the cluster's operator has a session."""
        shards = [host.shard for host in self.hosts.values() if host.shard is not None]
        return next((shard for shard in shards if shard.sessions.of(cluster) is not None), None)

    def _obeyed(self, fence: Fence, machine: Machine, event: MachineEvent) -> None:
        self.money.obeyed(fence, machine, event, self.clock.unix_seconds())
        if self.coordinators is not None:
            self.safety.note(self.ownership.trespass(fence, machine, event))

    def _look_at(self, shard: str, thought: Thought) -> None:
        self.safety.look_at_decision(shard, thought)
        if self.coordinators is not None:
            self.safety.note(self.ownership.conflicts(self.removed_shards))
        if self.provider.running:
            truth = self.provider.machines()
            expected = len(self.plan.machines)
            self.safety.look_at_machines(truth, self.clusters.values(), expected)
            now_seconds = self.clock.unix_seconds()
            self.safety.note(self.money.bought_twice(thought, truth, now_seconds))
        counts = Counter(action.type for action in thought.decision.actions)
        shortfalls = len(thought.decision.shortfalls)
        self.cycles.append(Cycled(thought.view.now_seconds, counts, shortfalls))


@asynccontextmanager
async def worlds(plan: Plan) -> AsyncIterator[World]:
    """A world that runs inside the `async with`."""
    logger = logging.getLogger("bigfleet")
    with tempfile.TemporaryDirectory(prefix="bigfleet-simulation-") as directory:
        world = World(plan, Path(directory))
        logger.addHandler(world.safety)
        world.start()
        try:
            yield world
        finally:
            await world.stop()
            logger.removeHandler(world.safety)
