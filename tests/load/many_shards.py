"""What the coordinator of a large fleet costs: production's coordinator, and the reports of all
shards as they are on the wire, on a virtual clock and with a store in memory.

`python -m tests.load.many_shards --shards 50,100,200` prints what it finds for each size. CPU time
is this process's own, so that other work on the machine hardly counts. The costs of gRPC and etcd
come on top.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from unittest.mock import patch

from bigfleet.services.coordinator import ladder, quota_moves, rebalancing
from bigfleet.services.coordinator.domain_lifecycle import DomainState
from bigfleet.services.coordinator.registry import Registry
from bigfleet.simulation.hosts.coordinators import Coordinators
from bigfleet.simulation.runtime.faults import Delays, FaultInjector, FaultRates
from bigfleet.simulation.runtime.loop import run
from bigfleet.simulation.runtime.permanent_faults import PermanentFaults
from bigfleet.tasks import cancel_and_wait
from tests.load.simulated_shards import Meter, SimulatedShard, old_shortfalls, racks

# A removed shard must have been silent for ten seconds.
_SILENT_SECONDS = 11.0
_LONGEST_WAIT_SECONDS = 900.0
_BALANCE_MARGIN = 0.1


@dataclass(frozen=True)
class Size:
    """How large a fleet is."""

    shards: int
    clusters_per_shard: int = 100
    domains_per_shard: int = 100
    rest_seconds: float = 60.0
    short_seconds: float = 20.0

    @property
    def domains(self) -> int:
        """All of them."""
        return self.shards * self.domains_per_shard

    @property
    def clusters(self) -> int:
        """All of them."""
        return self.shards * self.clusters_per_shard


@dataclass
class Cost:
    """Of the coordinator in one phase; `pause_seconds` is the longest CPU time of one call."""

    virtual_seconds: float
    cpu_seconds: float
    pause_seconds: float
    reports: int
    report_bytes_mean: int
    report_bytes_max: int

    @property
    def cores(self) -> float:
        """CPU seconds per second; 0 where no time passes."""
        return self.cpu_seconds / self.virtual_seconds if self.virtual_seconds else 0.0


class _Longest:
    """Notes the longest CPU time of the choices of what moves, which nothing interrupts. Garbage
    is not collected meanwhile: most objects of this process are those of the simulated shards.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def metering(self) -> Iterator[None]:
        """Meter all choices inside."""
        with ExitStack() as stack:
            for module in (ladder, rebalancing, quota_moves):
                metered = self._metered(module.choose)
                stack.enter_context(patch.object(module, "choose", metered))
            yield

    def _metered(self, choose: Callable[..., object]) -> Callable[..., object]:
        def metered(*known: object) -> object:
            gc.disable()
            began = time.process_time()
            chosen = choose(*known)
            self.seconds = max(self.seconds, time.process_time() - began)
            gc.enable()
            return chosen

        return metered


@dataclass
class Fleet:
    """A coordinator and its shards."""

    size: Size
    coordinators: Coordinators
    longest: _Longest
    meter: Meter = field(default_factory=Meter)
    shards: dict[str, SimulatedShard] = field(default_factory=dict)
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """The domains are there before the shards."""
        self._seen = racks(self.size.domains)

    @property
    def registry(self) -> Registry:
        """The leader's."""
        registry = self.coordinators.registry
        assert registry is not None
        return registry

    def join(self) -> SimulatedShard:
        """Start one more shard."""
        shard = SimulatedShard(len(self.shards), self._seen, self.coordinators, self.meter)
        self.shards[shard.id] = shard
        self._running[shard.id] = asyncio.create_task(shard.run())
        return shard

    async def kill(self, shard_id: str) -> None:
        """End a shard, which says nothing any more."""
        await cancel_and_wait(self._running.pop(shard_id))

    async def end(self) -> None:
        """End all shards."""
        for shard_id in [*self._running]:
            await self.kill(shard_id)

    @asynccontextmanager
    async def measured(self, costs: dict[str, Cost], name: str) -> AsyncIterator[None]:
        """Note under `name` what the phase inside costs."""
        clock, meter = asyncio.get_running_loop().time, self.meter
        self.longest.seconds = 0.0
        meter.report_bytes.clear()
        virtual, cpu = clock(), time.process_time() - meter.shard_cpu_seconds
        yield
        sizes = meter.report_bytes or [0]
        costs[name] = Cost(
            clock() - virtual,
            time.process_time() - meter.shard_cpu_seconds - cpu,
            self.longest.seconds,
            len(meter.report_bytes),
            sum(sizes) // len(sizes),
            max(sizes),
        )

    def are_all_owned(self) -> bool:
        """Whether each domain has an owner that has accepted it, and nobody else has it."""
        rows = self.registry.domains.values()
        running = (self.shards[name].ownership.record for name in self._running)
        return (
            len(rows) == self.size.domains
            and all(row.state is DomainState.OWNED and row.shard in self._running for row in rows)
            and sum(len(record.domains) for record in running) == self.size.domains
        )

    def unevenness(self) -> float:
        """How far any shard's part of any type is from an even one, as a share of that."""
        loads = [self.registry.load(name).of_type for name in self._running]
        totals = {name: sum(load[name] for load in loads) for name in set().union(*loads)}
        return max(
            abs(load[name] - total / len(loads)) * len(loads) / total
            for name, total in totals.items()
            for load in loads
        )

    async def resolve(self, cluster: str, asking: str) -> str:
        """The shard that serves a cluster, as an operator finds it that has dialled `asking`."""
        row, _ = await self.coordinators.call_leader(
            lambda handlers, leader_term: handlers.resolve(leader_term, cluster, asking)
        )
        return row.shard


async def _until(condition: Callable[[], bool]) -> None:
    """Wait in steps of a quarter of a virtual second."""
    async with asyncio.timeout(_LONGEST_WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0.25)


@asynccontextmanager
async def _fleet(size: Size) -> AsyncIterator[Fleet]:
    injector = FaultInjector(0, FaultRates(), Delays(), PermanentFaults())
    coordinators = Coordinators(["c-0"], injector, size.shards)
    coordinators.start_all()
    fleet = Fleet(size, coordinators, _Longest())
    await _until(lambda: coordinators.registry is not None)
    with fleet.longest.metering():
        yield fleet
    await fleet.end()
    await coordinators.stop()


async def measure(size: Size) -> dict[str, Cost]:
    """All phases of a fleet, in the order of its life. A phase that does not end in a quarter of an
    hour fails.
    """
    costs: dict[str, Cost] = {}
    async with _fleet(size) as fleet:
        async with fleet.measured(costs, "start"):
            for _ in range(size.shards):
                fleet.join()
            await _until(fleet.are_all_owned)
        async with fleet.measured(costs, "clusters"):
            await _resolve_all(fleet)
        async with fleet.measured(costs, "at rest"):
            await asyncio.sleep(size.rest_seconds)
        await _without_free_machines(fleet, costs)
        await _after_a_loss(fleet, costs)
        async with fleet.measured(costs, "a shard joins"):
            fleet.join()
            await _until(lambda: fleet.are_all_owned() and fleet.unevenness() <= _BALANCE_MARGIN)
    return costs


async def _resolve_all(fleet: Fleet) -> None:
    """Each cluster asks a shard, and keeps the one that it is told."""
    names = [*fleet.shards]
    for number in range(fleet.size.clusters):
        await fleet.resolve(f"cluster-{number:05d}", names[number % len(names)])


async def _without_free_machines(fleet: Fleet, costs: dict[str, Cost]) -> None:
    """All shards report as many shortfalls as they may, and nothing can be done."""
    domains = [*racks(fleet.size.domains)]
    for shard in fleet.shards.values():
        others = [domain for domain in domains if domain not in shard.ownership.domains]
        shard.short_of = old_shortfalls(100, others)
    async with fleet.measured(costs, "all short"):
        await asyncio.sleep(fleet.size.short_seconds)
    for shard in fleet.shards.values():
        shard.short_of = ()
    await asyncio.sleep(10)


async def _after_a_loss(fleet: Fleet, costs: dict[str, Cost]) -> None:
    """From the command that removes a silent shard until others serve all that it served."""
    lost = next(iter(fleet.shards))
    served = [row.id for row in fleet.registry.clusters.values() if row.shard == lost]
    await fleet.kill(lost)
    await asyncio.sleep(_SILENT_SECONDS)
    async with fleet.measured(costs, "a shard is lost"):
        await fleet.coordinators.call_leader(
            lambda handlers, leader_term: handlers.remove(leader_term, lost)
        )
        names = [name for name in fleet.shards if name != lost]
        for number, cluster in enumerate(served):
            assert await fleet.resolve(cluster, names[number % len(names)]) != lost
        await _until(fleet.are_all_owned)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.load.many_shards")
    parser.add_argument("--shards", default="50,100,200", metavar="N,...")
    parser.add_argument("--clusters-per-shard", type=int, default=100, metavar="N")
    parser.add_argument("--domains-per-shard", type=int, default=100, metavar="N")
    flags = parser.parse_args(arguments)
    for shards in map(int, flags.shards.split(",")):
        size = Size(shards, flags.clusters_per_shard, flags.domains_per_shard)
        found = run(partial(measure, size))
        for phase, cost in found.items():
            line = {"shards": shards, "phase": phase, **asdict(cost), "cores": cost.cores}
            rounded = {k: round(v, 3) if isinstance(v, float) else v for k, v in line.items()}
            print(json.dumps(rounded), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
