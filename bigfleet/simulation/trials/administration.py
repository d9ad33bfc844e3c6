"""What administrators do to a fleet: Nodes, clusters, ceilings and quotas."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.errors import BigFleetError
from bigfleet.model.machine import BOUND
from bigfleet.simulation.cluster.cluster import SimulatedCluster
from bigfleet.simulation.hosts.coordinators import Coordinators
from bigfleet.simulation.hosts.provider import NAME
from bigfleet.simulation.runtime.disk import Crash
from bigfleet.simulation.trials.workloads import Event
from bigfleet.simulation.world import World

_LOOK_INTERVAL_SECONDS = 5.0


async def delete_node(world: World, event: Event) -> None:
    """Delete a Node by hand."""
    cluster = world.clusters[event.subject]
    if name := _some_node(cluster, event.pods):
        cluster.withdrawn += 1
        cluster.leave(name)


async def cordon_node(world: World, event: Event) -> None:
    """Cordon a Node by hand, for some seconds or, for 0, for good."""
    cluster = world.clusters[event.subject]
    if name := _some_node(cluster, event.pods):
        node = cluster.nodes[name]
        cluster.withdrawn += 1
        cluster.cordon(name)
        if event.seconds:
            await asyncio.sleep(event.seconds)
            if cluster.nodes.get(name) is node and not node.leaving:
                cluster.cordon(name, cordoned=False)


def _some_node(cluster: SimulatedCluster, number: int) -> str:
    names = sorted(node.name for node in cluster.nodes.values() if node.usable)
    return names[number % len(names)] if names else ""


async def set_ceiling(world: World, event: Event) -> None:
    """Replace a cluster's ceiling."""
    if event.ceiling is not None:
        world.limits.set_ceiling(event.subject, event.ceiling)


async def set_quota(world: World, coordinators: Coordinators, event: Event) -> None:
    """Let each shard have so many elastic machines of a zone; retried until that is stored."""
    known = set(world.hosts) - set(world.removed_shards) - set(world.spec.late_shards)
    per_shard = dict.fromkeys(sorted(known), event.pods)
    quota = wire.QuotaAllocation(provider=NAME, region=event.subject, per_shard=per_shard)
    for _ in range(int(_LOOK_INTERVAL_SECONDS)):
        try:
            await coordinators.call_leader(
                lambda handlers, leader_term: handlers.set_quota(leader_term, quota)
            )
        except BigFleetError as error:
            world.story.record("-- refused", why=str(error))
            await asyncio.sleep(1.0)
        else:
            return


async def remove_cluster(world: World, event: Event) -> None:
    """Delete a cluster with its operator, then remove it from the fleet."""
    operator = world.operators[event.subject]
    operator.online = False
    operator.disconnect()
    world.clusters[event.subject].vanish()
    world.spawn(_watch_removal(world, event.subject))


async def _watch_removal(world: World, cluster: str) -> None:
    """Order the removal, and again whenever machines are left and no shard drains them: it is lost
    with its shard's disk.
    """
    while True:
        shards = [host.shard for host in world.hosts.values() if host.shard is not None]
        pending = any(cluster in shard.cycle.removals for shard in shards)
        if not pending and (cluster not in world.limits.removed or _has_machines(world, cluster)):
            await _order_removal(world, cluster)
        await asyncio.sleep(_LOOK_INTERVAL_SECONDS)


def _has_machines(world: World, cluster: str) -> bool:
    if not world.provider.running:
        return False
    machines = world.provider.machines().values()
    return any(machine.cluster == cluster and machine.state in BOUND for machine in machines)


async def _order_removal(world: World, cluster: str) -> None:
    """Order the removal at whichever shard serves the cluster."""
    for host in world.hosts.values():
        if host.shard is not None and not host.removed:
            try:
                plan = await host.shard.remover().order(cluster, force=True, dry_run=False)
            except (BigFleetError, Crash) as error:
                world.story.record("-- refused", why=str(error))
                continue
            if not plan.served_by:
                world.limits.removed.add(cluster)
                return


OF_ADMINISTRATORS: dict[str, Callable[[World, Event], Awaitable[None]]] = {
    "node deleted": delete_node,
    "node cordoned": cordon_node,
    "ceiling": set_ceiling,
    "cluster removed": remove_cluster,
}
