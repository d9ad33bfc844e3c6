"""A shard's host: its disk, its clock, and its process, which may die and restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bigfleet.adapters.store.epoch_file import EpochFile
from bigfleet.adapters.store.eviction_file import EvictionFile
from bigfleet.adapters.store.ownership_file import OwnershipFile
from bigfleet.adapters.store.removal_file import RemovalFile
from bigfleet.api.v1alpha1.shard_pb2 import Redirect
from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model.ceiling import Ceilings
from bigfleet.model.errors import BigFleetError, Fenced, Unavailable
from bigfleet.ports.coordinator import Coordinator
from bigfleet.ports.ownership import OwnershipRecord
from bigfleet.ports.provider import CapacityProvider
from bigfleet.ports.store import ShardStores
from bigfleet.services.shard.assembly import Shard, assemble
from bigfleet.services.shard.config import ShardConfig
from bigfleet.services.shard.coordination.assembly import CoordinatorPorts
from bigfleet.services.shard.decide.compute import CycleResult
from bigfleet.services.shard.execute.fences import obtain_epoch
from bigfleet.services.shard.records.journal import Journal
from bigfleet.services.shard.sessions.registry import Sessions
from bigfleet.simulation.runtime.disk import Crash, SimulatedFiles
from bigfleet.simulation.runtime.faults import FaultInjector
from bigfleet.simulation.runtime.loop import VirtualClock
from bigfleet.tasks import cancel_and_wait

RESTART_SECONDS = 3.0
_PROVIDER = "provider:7782"
_T = TypeVar("_T")


@dataclass(frozen=True)
class ShardEnvironment:
    """The environment of each shard. `spawn` runs a task beside it, `ended` is called with its
    finished task, and `result` with each decision. `ceilings` returns those in force.
    """

    provider: CapacityProvider
    injector: FaultInjector
    engine: EngineConfig
    cycle_seconds: float
    spawn: Callable[[Coroutine[Any, Any, None]], None]
    ended: Callable[[asyncio.Task[None]], None]
    result: Callable[[CycleResult], None]
    ceilings: Callable[[], Ceilings]


class ShardHost:
    """`shard` is None while its process is down. With a `coordinator` it is one of several.

    `removed`: it was removed from the fleet and must not restart.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        environment: ShardEnvironment,
        journal: Journal,
        coordinator: Coordinator | None = None,
    ) -> None:
        self.name, self.address = name, f"{name}:7780"
        self.clock = VirtualClock()
        self.files = SimulatedFiles(
            environment.injector, lambda: environment.spawn(self._restart())
        )
        self.shard: Shard | None = None
        self.removed = False
        self._directory, self._environment = directory, environment
        self._journal, self._coordinator = journal, coordinator
        self._work: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start it under the next epoch with its disk's state; retried later if the disk is full or
        the start crashes. With an empty disk it first claims an epoch.
        """
        if self._work is not None or self.removed:
            return
        self.files.mount()
        try:
            epochs = EpochFile(self._directory, self.files)
            if self._coordinator is None or epochs.last():
                self._begin(epochs.next_epoch())
            else:
                self._run(self._claim_epoch(epochs))
        except Crash:
            return
        except BigFleetError:
            self._environment.spawn(self._restart())

    async def kill(self) -> None:
        """Kill the process; its operators' streams break."""
        shard, self.shard = self.shard, None
        work, self._work = self._work, None
        if work is not None:
            await cancel_and_wait(work)
        if shard is not None:
            shard.sessions.close_all()

    async def open_session(self, cluster: str) -> Sessions | Redirect:
        """As production's servicer: a session or a redirect. Unavailable if neither is possible or
        the shard is down.
        """
        shard = self.shard
        if shard is None or cluster in shard.cycle.removals:
            raise Unavailable(f"shard {self.name} accepts no session of {cluster}")
        if shard.coordination is None:
            return shard.sessions
        try:
            redirect = await shard.coordination.router.redirect_for(cluster)
        except Crash:
            raise Unavailable(f"shard {self.name} has died") from None
        if self.shard is not shard:
            raise Unavailable(f"shard {self.name} has died")
        return redirect or shard.sessions

    @property
    def held(self) -> OwnershipRecord:
        """What it owns according to its disk, whether it is up or not."""
        if self.shard is not None and self.shard.coordination is not None:
            return self.shard.coordination.ownership.record
        return OwnershipFile(self._directory, self.files).load()

    async def _claim_epoch(self, epochs: EpochFile) -> None:
        environment, report = self._environment, lambda _: None
        provider, coordinator = environment.provider, self._coordinator
        epoch = await obtain_epoch(epochs, self.name, [provider], coordinator, report)
        await self._assembled(epoch).run()

    def _begin(self, epoch: int) -> None:
        self._run(self._assembled(epoch).run())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = asyncio.create_task(work)
        self._work.add_done_callback(self._ended)

    def _ended(self, work: asyncio.Task[None]) -> None:
        """A failed start ends the process, and it is restarted."""
        error = None if work.cancelled() else work.exception()
        if isinstance(error, BigFleetError) and self.shard is None:
            if not isinstance(error, Fenced):
                self._environment.spawn(self._restart())
        else:
            self._environment.ended(work)

    def _assembled(self, epoch: int) -> Shard:
        environment, directory, files = self._environment, self._directory, self.files
        coordinator_ports = None
        if self._coordinator is not None:
            coordinator_ports = CoordinatorPorts(self._coordinator, OwnershipFile(directory, files))
        settings = ShardConfig(
            shard_id=self.name,
            listen_port=0,
            observe_port=0,
            provider_addresses=(_PROVIDER,),
            state_directory=directory,
            cycle_seconds=environment.cycle_seconds,
            engine=environment.engine,
        )
        stores = ShardStores(EvictionFile(directory, files), RemovalFile(directory, files))
        clock, journal = self.clock, self._journal
        providers = {_PROVIDER: environment.provider}
        shard = assemble(settings, providers, clock, journal, epoch, stores, coordinator_ports)
        shard.cycle.offload, shard.cycle.ceilings = self._compute, environment.ceilings
        if shard.coordination is not None:
            shard.coordination.reporter.address = self.address
            shard.coordination.reporter.offload = at_once
        self.shard = shard
        return shard

    async def _compute(self, work: Callable[[], CycleResult]) -> CycleResult:
        """Compute synchronously, because threads are not deterministic, and check the result."""
        result = work()
        self._environment.result(result)
        return result

    async def _restart(self) -> None:
        await self.kill()
        await asyncio.sleep(RESTART_SECONDS)
        self.start()


async def at_once(work: Callable[[], _T]) -> _T:
    """Run `work` synchronously: threads are not deterministic."""
    return work()
