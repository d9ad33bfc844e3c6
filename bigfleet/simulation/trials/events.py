"""Applies the events of a trial to its world."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bigfleet.model.errors import BigFleetError, Unavailable
from bigfleet.services.coordinator.handlers import LeaderHandlers
from bigfleet.services.coordinator.leader_term import LeaderTerm
from bigfleet.simulation.cluster.cluster import SimulatedCluster
from bigfleet.simulation.cluster.workload import Workload
from bigfleet.simulation.hosts.coordinators import Coordinators
from bigfleet.simulation.hosts.shard_host import ShardHost
from bigfleet.simulation.trials.administration import OF_ADMINISTRATORS, set_quota
from bigfleet.simulation.trials.workloads import Event
from bigfleet.simulation.world import World

# Longer than the coordinator's timeout for a silent shard.
_SILENT_SECONDS = 12.0
_RETRY_INTERVAL_SECONDS, _MAX_ATTEMPTS = 2.0, 60
_LeaderCall = Callable[[LeaderHandlers, LeaderTerm], Awaitable[None]]


async def apply_event(world: World, event: Event) -> None:
    """Apply `event` now; returns once it is over."""
    if event.workload is not None:
        _change(world.clusters[event.subject], event.what, event.workload, event.pods)
    elif event.what in _OF_SHARDS:
        await _OF_SHARDS[event.what](world, _host(world, event), event)
    elif event.what in _OF_COORDINATORS and world.coordinators is not None:
        await _OF_COORDINATORS[event.what](world, world.coordinators, event)
    elif event.what in _OF_OTHERS:
        await _OF_OTHERS[event.what](world, event)


def _host(world: World, event: Event) -> ShardHost:
    return world.hosts[event.subject or next(iter(world.hosts))]


def _change(cluster: SimulatedCluster, what: str, workload: Workload, pods: int) -> None:
    if what == "apply":
        cluster.apply(workload)
    elif what == "delete":
        cluster.delete(workload.name, pods)
    else:
        cluster.complete(workload.name, pods)


async def _provider_dies(world: World, event: Event) -> None:
    if world.provider.running:
        await world.provider.stop()
        await asyncio.sleep(event.seconds)
        world.start_provider()


async def _clock_jumps(world: World, event: Event) -> None:
    clock = world.shard_clock if event.subject == "shard" else world.provider_clock
    clock.ahead_seconds += event.seconds


async def _stream_breaks(world: World, event: Event) -> None:
    world.operators[event.subject].disconnect()


async def _away(world: World, event: Event) -> None:
    operator = world.operators[event.subject]
    operator.online = False
    operator.disconnect()
    await asyncio.sleep(event.seconds)
    operator.online = True


async def _dies(_: World, host: ShardHost, event: Event) -> None:
    if host.shard is not None:
        await _restart(host, event.seconds, lambda: None)


async def _loses_power(_: World, host: ShardHost, event: Event) -> None:
    await _restart(host, event.seconds, host.files.cut_power)


async def _loses_disk(_: World, host: ShardHost, event: Event) -> None:
    await _restart(host, event.seconds, host.files.wipe)


async def _restart(host: ShardHost, down_seconds: float, damage: Callable[[], None]) -> None:
    await host.kill()
    damage()
    await asyncio.sleep(down_seconds)
    host.start()


async def _comes(_: World, host: ShardHost, __: Event) -> None:
    host.start()


async def _is_cut_off(world: World, host: ShardHost, event: Event) -> None:
    link = world.coordinator_links[host.name]
    link.connected = False
    await asyncio.sleep(event.seconds)
    link.connected = True


async def _leaves(world: World, coordinators: Coordinators, event: Event) -> None:
    """An administrator removes a shard that is live as far as the coordinator knows. Before
    removing a silent one they would have to know that it is dead.
    """
    host = _host(world, event)

    async def remove(handlers: LeaderHandlers, leader_term: LeaderTerm) -> None:
        if host.name not in leader_term.reports.live(leader_term.clock.monotonic_seconds()):
            raise Unavailable(f"{host.name} is silent")
        await handlers.remove(leader_term, host.name)

    await _retry(world, coordinators, remove)


async def _is_lost(world: World, coordinators: Coordinators, event: Event) -> None:
    """A shard dies for good and is removed."""
    host = _host(world, event)
    host.removed = True
    await host.kill()
    await asyncio.sleep(_SILENT_SECONDS)
    await _retry(world, coordinators, lambda handlers, term: handlers.remove(term, host.name))


async def _takes_a_domain(world: World, coordinators: Coordinators, event: Event) -> None:
    host, registry = _host(world, event), coordinators.registry
    if registry is not None and registry.domains:
        names = sorted(registry.domains)
        name = names[event.pods % len(names)]
        world.story.record("-- domain", name="=".join(name), to=host.name)
        await _retry(
            world, coordinators, lambda handlers, term: handlers.assign(term, name, host.name)
        )


async def _retry(world: World, coordinators: Coordinators, call: _LeaderCall) -> None:
    """Retry until the coordinator accepts the call, or give up."""
    for _ in range(_MAX_ATTEMPTS):
        try:
            await coordinators.call_leader(call)
        except BigFleetError as error:
            world.story.record("-- refused", why=str(error))
            await asyncio.sleep(_RETRY_INTERVAL_SECONDS)
        else:
            return


async def _deposed(_: World, coordinators: Coordinators, __: Event) -> None:
    await coordinators.depose()


async def _replica_dies(_: World, coordinators: Coordinators, event: Event) -> None:
    name = coordinators.leader
    await coordinators.kill(name)
    await asyncio.sleep(event.seconds)
    coordinators.start(name)


async def _all_away(_: World, coordinators: Coordinators, event: Event) -> None:
    await coordinators.stop()
    await asyncio.sleep(event.seconds)
    coordinators.start_all()


_OF_SHARDS: dict[str, Callable[[World, ShardHost, Event], Awaitable[None]]] = {
    "shard dies": _dies,
    "power cut": _loses_power,
    "disk lost": _loses_disk,
    "shard comes": _comes,
    "shard cut off": _is_cut_off,
}
_OF_OTHERS: dict[str, Callable[[World, Event], Awaitable[None]]] = {
    "provider dies": _provider_dies,
    "clock jumps": _clock_jumps,
    "operator away": _away,
    "stream breaks": _stream_breaks,
    **OF_ADMINISTRATORS,
}
_OF_COORDINATORS: dict[str, Callable[[World, Coordinators, Event], Awaitable[None]]] = {
    "shard leaves": _leaves,
    "shard lost": _is_lost,
    "domain moves": _takes_a_domain,
    "coordinator deposed": _deposed,
    "coordinator dies": _replica_dies,
    "coordinator away": _all_away,
    "quota": set_quota,
}
