"""What the events of a drawn world do to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bigfleet.model.errors import BigFleetError, Unavailable
from bigfleet.services.coordinator.handlers import LeaderHandlers
from bigfleet.services.coordinator.leader_term import LeaderTerm
from bigfleet.simulation.cluster.cluster import SimulatedCluster
from bigfleet.simulation.cluster.workload import Workload
from bigfleet.simulation.hosts.shard_host import ShardHost
from bigfleet.simulation.trials.workloads import Event
from bigfleet.simulation.world import World

# Longer than a coordinator waits before it calls a shard silent.
_SILENT_SECONDS = 12.0
_RETRY_INTERVAL_SECONDS, _MAX_ATTEMPTS = 2.0, 60
_LeaderCall = Callable[[LeaderHandlers, LeaderTerm], Awaitable[None]]


async def apply_event(world: World, event: Event) -> None:
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
        world.operators[event.subject].disconnect()


def _change(cluster: SimulatedCluster, what: str, workload: Workload, pods: int) -> None:
    if what == "apply":
        cluster.apply(workload)
    elif what == "delete":
        cluster.delete(workload.name, pods)
    else:
        cluster.complete(workload.name, pods)


async def _away(world: World, event: Event) -> None:
    operator = world.operators[event.subject]
    operator.online = False
    operator.disconnect()
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
    link = world.coordinator_links[host.name]
    link.connected = False
    await asyncio.sleep(event.seconds)
    link.connected = True


async def _leaves(world: World, host: ShardHost, _: Event) -> None:
    """Somebody takes a shard out that lives as far as the coordinator knows. Of a silent one they
    would have to know that it is dead.
    """

    async def remove(handlers: LeaderHandlers, leader_term: LeaderTerm) -> None:
        if host.name not in leader_term.reports.live(leader_term.clock.monotonic_seconds()):
            raise Unavailable(f"{host.name} is silent")
        await handlers.remove(leader_term, host.name)

    await _retry(world, remove)


async def _is_lost(world: World, host: ShardHost, _: Event) -> None:
    """It dies for good, and somebody says so; not while it has a Node emptied, since the simulated
    operator does not tell of Nodes that are gone, from which the next shard would learn of it.
    """
    while host.shard is not None and len(host.shard.cycle.evictions):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    host.removed = True
    await host.kill()
    await asyncio.sleep(_SILENT_SECONDS)
    await _retry(world, lambda handlers, leader_term: handlers.remove(leader_term, host.name))


async def _takes_a_domain(world: World, host: ShardHost, event: Event) -> None:
    registry = world.coordinators.registry if world.coordinators is not None else None
    if registry is not None and registry.domains:
        names = sorted(registry.domains)
        name = names[event.pods % len(names)]
        world.story.record("-- domain", name="=".join(name), to=host.name)
        await _retry(
            world, lambda handlers, leader_term: handlers.assign(leader_term, name, host.name)
        )


async def _retry(world: World, call: _LeaderCall) -> None:
    """As people do: ask until the coordinator has taken it on, or has refused for good."""
    for _ in range(_MAX_ATTEMPTS):
        try:
            if world.coordinators is not None:
                await world.coordinators.call_leader(call)
        except BigFleetError as error:
            world.story.record("-- refused", why=str(error))
            await asyncio.sleep(_RETRY_INTERVAL_SECONDS)
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
