"""What the events of a drawn world do to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bigfleet.model.errors import BigFleetError, Unavailable
from bigfleet.services.coordinator.desk import Desk
from bigfleet.services.coordinator.reign import Reign
from bigfleet.simulation.cluster import Cluster
from bigfleet.simulation.draw_workloads import Event
from bigfleet.simulation.shard_host import ShardHost
from bigfleet.simulation.workload import Workload
from bigfleet.simulation.world import World

# Longer than a coordinator waits before it calls a shard silent.
_SURELY_SILENT_SECONDS = 12.0
_ASK_AGAIN_SECONDS, _MOST_TRIES = 2.0, 60
_Ask = Callable[[Desk, Reign], Awaitable[None]]


async def happen(world: World, event: Event) -> None:
    """Let `event` happen now; returns once it is over."""
    if event.workload is not None:
        _change(world.clusters[event.subject], event.what, event.workload, event.pods)
    elif event.what in _TO_A_SHARD:
        subject = event.subject or next(iter(world.hosts))
        await _TO_A_SHARD[event.what](world, world.hosts[subject], event)
    elif event.what in _TO_THE_COORDINATOR:
        await _TO_THE_COORDINATOR[event.what](world, event)
    elif event.what == "provider dies" and world.provider.running:
        await world.provider.stop()
        await asyncio.sleep(event.seconds)
        world.start_provider()
    elif event.what == "clock jumps":
        clock = world.shard_clock if event.subject == "shard" else world.provider_clock
        clock.ahead_seconds += event.seconds
    elif event.what == "operator away":
        await _away(world, event)
    elif event.what == "stream breaks":
        world.operators[event.subject].hang_up()


def _change(cluster: Cluster, what: str, workload: Workload, pods: int) -> None:
    if what == "apply":
        cluster.apply(workload)
    elif what == "delete":
        cluster.delete(workload.name, pods)
    else:
        cluster.complete(workload.name, pods)


async def _away(world: World, event: Event) -> None:
    operator = world.operators[event.subject]
    operator.online = False
    operator.hang_up()
    await asyncio.sleep(event.seconds)
    operator.online = True


async def _dies(_: World, host: ShardHost, event: Event) -> None:
    if host.shard is not None:
        await host.kill()
        await asyncio.sleep(event.seconds)
        host.start()


async def _loses_power(_: World, host: ShardHost, event: Event) -> None:
    await host.kill()
    host.files.cut_power()
    await asyncio.sleep(event.seconds)
    host.start()


async def _loses_disk(_: World, host: ShardHost, event: Event) -> None:
    await host.kill()
    host.files.wipe()
    await asyncio.sleep(event.seconds)
    host.start()


async def _comes(_: World, host: ShardHost, __: Event) -> None:
    host.start()


async def _is_cut_off(world: World, host: ShardHost, event: Event) -> None:
    line = world.lines[host.name]
    line.connected = False
    await asyncio.sleep(event.seconds)
    line.connected = True


async def _leaves(world: World, host: ShardHost, _: Event) -> None:
    """Somebody takes a shard out that lives as far as the coordinator knows. Of a silent one they
    would have to know that it is dead.
    """

    async def remove(desk: Desk, reign: Reign) -> None:
        if host.name not in reign.reports.live(reign.clock.monotonic_seconds()):
            raise Unavailable(f"{host.name} is silent")
        await desk.remove(reign, host.name)

    await _insist(world, remove)


async def _is_lost(world: World, host: ShardHost, _: Event) -> None:
    """It dies for good, and somebody says so; not while it has a Node emptied, since the simulated
    operator does not tell of Nodes that are gone, from which the next shard would learn of it.
    """
    while host.shard is not None and len(host.shard.cycle.evictions):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    host.removed = True
    await host.kill()
    await asyncio.sleep(_SURELY_SILENT_SECONDS)
    await _insist(world, lambda desk, reign: desk.remove(reign, host.name))


async def _takes_a_domain(world: World, host: ShardHost, event: Event) -> None:
    registry = world.coordinators.registry if world.coordinators is not None else None
    if registry is not None and registry.domains:
        names = sorted(registry.domains)
        name = names[event.pods % len(names)]
        world.story.tell("-- domain", name="=".join(name), to=host.name)
        await _insist(world, lambda desk, reign: desk.assign(reign, name, host.name))


async def _insist(world: World, call: _Ask) -> None:
    """As people do: ask until the coordinator has taken it on, or has refused for good."""
    for _ in range(_MOST_TRIES):
        try:
            if world.coordinators is not None:
                await world.coordinators.ask(call)
        except BigFleetError as error:
            world.story.tell("-- refused", why=str(error))
            await asyncio.sleep(_ASK_AGAIN_SECONDS)
        else:
            return


async def _deposed(world: World, _: Event) -> None:
    if world.coordinators is not None:
        await world.coordinators.depose()


async def _replica_dies(world: World, event: Event) -> None:
    coordinators = world.coordinators
    if coordinators is not None:
        name = coordinators.leading
        await coordinators.kill(name)
        await asyncio.sleep(event.seconds)
        coordinators.start(name)


async def _all_away(world: World, event: Event) -> None:
    if world.coordinators is not None:
        await world.coordinators.stop()
        await asyncio.sleep(event.seconds)
        world.coordinators.start_all()


_TO_A_SHARD: dict[str, Callable[[World, ShardHost, Event], Awaitable[None]]] = {
    "shard dies": _dies,
    "power cut": _loses_power,
    "disk lost": _loses_disk,
    "shard comes": _comes,
    "shard cut off": _is_cut_off,
    "shard leaves": _leaves,
    "shard lost": _is_lost,
    "domain moves": _takes_a_domain,
}
_TO_THE_COORDINATOR: dict[str, Callable[[World, Event], Awaitable[None]]] = {
    "coordinator deposed": _deposed,
    "coordinator dies": _replica_dies,
    "coordinator away": _all_away,
}
