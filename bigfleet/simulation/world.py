"""One shard, one provider, some clusters: wired as in life, on a virtual clock."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bigfleet.adapters.store.epoch_file import EpochFile
from bigfleet.adapters.store.eviction_file import EvictionFile
from bigfleet.adapters.store.removal_file import RemovalFile
from bigfleet.engine.decision import ActionKind
from bigfleet.engine.snapshot import Settings as EngineSettings
from bigfleet.model.errors import BigFleetError
from bigfleet.model.machine import TRANSITIONAL, Machine, MachineState
from bigfleet.services.provider.settings import Latencies
from bigfleet.services.shard.assembly import Kept, Shard, assemble
from bigfleet.services.shard.sessions import Sessions
from bigfleet.services.shard.settings import Settings as ShardSettings
from bigfleet.services.shard.thinking import Thought
from bigfleet.simulation.broken import Broken
from bigfleet.simulation.cluster import Cluster
from bigfleet.simulation.disk import Crash, SimulatedFiles
from bigfleet.simulation.faults import Delays, Fate, Faults
from bigfleet.simulation.loop import VirtualClock
from bigfleet.simulation.operator import SimulatedOperator
from bigfleet.simulation.provider import SimulatedHosts, SimulatedProvider
from bigfleet.simulation.safety import Safety
from bigfleet.simulation.story import Story
from bigfleet.simulation.workload import Workload
from bigfleet.tasks import end

REVIVAL_SECONDS = 3.0


@dataclass(frozen=True)
class Plan:
    """What a world is made of. `spot_hours_per_second` is the spot market's pace, 0 for no losses.
    `scheduler_looks_ahead` when it begins a gang. `daemons` run on every Node. `request_additional`
    False is a wrong way to report demand, there to show why. What is `broken` never works.
    """

    machines: Sequence[Machine]
    clusters: Sequence[str] = ("east",)
    seed: int = 0
    engine: EngineSettings = field(default_factory=EngineSettings)
    cycle_seconds: float = 1.0
    latencies: Latencies = field(default_factory=Latencies)
    delays: Delays = field(default_factory=Delays)
    spot_hours_per_second: float = 0.0
    scheduler_looks_ahead: bool = True
    daemons: Sequence[Workload] = ()
    request_additional: bool = True
    broken: Broken = field(default_factory=Broken)


@dataclass(frozen=True)
class Cycled:
    """One cycle's decision in numbers; `at_seconds` is Unix time."""

    at_seconds: float
    actions: Mapping[ActionKind, int]
    shortfalls: int


class World:
    """A running world; `worlds` opens and closes it. `clock` is right; those of the shard's host
    and of the provider's may be set wrong.
    """

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan = plan
        self.clock, self.shard_clock, self.provider_clock = (VirtualClock() for _ in range(3))
        self.faults = Faults()
        self.fate = Fate(plan.seed, self.faults, plan.delays, plan.broken)
        self.story = Story(self.clock)
        self.clusters = {
            name: Cluster(
                name,
                self.clock.unix_seconds,
                looks_ahead=plan.scheduler_looks_ahead,
                daemons=plan.daemons,
                request_additional=plan.request_additional,
            )
            for name in plan.clusters
        }
        hosts = SimulatedHosts(self.clusters, self.fate)
        machines = directory / "provider"
        self.provider = SimulatedProvider(machines, hosts, self.fate, self.provider_clock)
        self.operators = {
            name: SimulatedOperator(cluster, self.fate, self.clock, self._sessions)
            for name, cluster in self.clusters.items()
        }
        if plan.broken.absent_operator:
            self.operators[plan.broken.absent_operator].online = False
        self.shard: Shard | None = None
        self.cycles: list[Cycled] = []
        self.safety = Safety(plan.engine)
        self.files = SimulatedFiles(self.fate, lambda: self._come_again(self._revive_shard()))
        self.provider.crashed = lambda: self._come_again(self._revive_provider())
        self._directory = directory
        self._healed = False
        self._work: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Everything begins at once."""
        self.start_provider()
        self.start_shard()
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
        await self.kill_shard()
        await self.provider.stop()

    def start_provider(self) -> None:
        """The provider comes up, with what its store remembers."""
        if self.provider.running:
            return
        plan = self.plan
        hours = 0.0 if self.healthy else plan.spot_hours_per_second
        self.provider.start(plan.machines, plan.latencies, plan.seed, hours)

    def start_shard(self) -> None:
        """A shard comes up under the next epoch, knowing what its disk does; later, if that is full
        or the shard dies of it.
        """
        if self.shard is not None:
            return
        self.files.mount()
        try:
            epoch = EpochFile(self._directory, self.files).next_epoch()
            evictions = EvictionFile(self._directory, self.files)
            kept = Kept(evictions, RemovalFile(self._directory, self.files))
        except Crash:
            return
        except BigFleetError:
            self._come_again(self._revive_shard())
            return
        settings = ShardSettings(
            shard_id="simulated",
            listen_port=0,
            observe_port=0,
            provider_address="in this process",
            state_directory=self._directory,
            cycle_seconds=self.plan.cycle_seconds,
            engine=self.plan.engine,
        )
        provider, clock = self.provider, self.shard_clock
        self.shard = assemble(settings, provider, clock, self.story, epoch, kept)
        self.shard.cycle.offload = self._offload
        self._work = asyncio.create_task(self.shard.run())
        self._work.add_done_callback(self.safety.look_at_task)

    async def kill_shard(self) -> None:
        """The shard dies on the spot; its operators' streams break."""
        shard, self.shard = self.shard, None
        if shard is not None and self._work is not None:
            await end(self._work)
            shard.sessions.close_all()

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
        if self.shard is None:
            self.start_shard()
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

    def ordered(self, kind: ActionKind, since_cycle: int = 0) -> int:
        """How many actions of a kind were decided from that cycle on."""
        return sum(cycled.actions.get(kind, 0) for cycled in self.cycles[since_cycle:])

    def in_state(self, state: MachineState) -> list[Machine]:
        """The machines that really are in a state, by id."""
        machines = self.provider.machines()
        return [machines[name] for name in sorted(machines) if machines[name].state is state]

    async def _revive_shard(self) -> None:
        await self.kill_shard()
        await asyncio.sleep(REVIVAL_SECONDS)
        self.start_shard()

    async def _revive_provider(self) -> None:
        await self.provider.stop()
        await asyncio.sleep(REVIVAL_SECONDS)
        self.start_provider()

    def _come_again(self, revival: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(revival))

    def _under_way(self) -> bool:
        return any(m.state in TRANSITIONAL for m in self.provider.machines().values())

    def _sessions(self) -> Sessions | None:
        return self.shard.sessions if self.shard is not None else None

    async def _offload(self, work: Callable[[], Thought]) -> Thought:
        """Think at once, because threads are not repeatable, and have the thought looked at."""
        thought = work()
        self.safety.look_at_decision(thought)
        if self.provider.running:
            truth = self.provider.machines()
            expected = len(self.plan.machines)
            self.safety.look_at_machines(truth, self.clusters.values(), expected)
        counts = Counter(action.kind for action in thought.decision.actions)
        shortfalls = len(thought.decision.shortfalls)
        self.cycles.append(Cycled(thought.view.now_seconds, counts, shortfalls))
        return thought


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
