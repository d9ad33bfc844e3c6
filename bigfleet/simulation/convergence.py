"""Conditions of a healthy world after convergence."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bigfleet.api.need_codec import need_from_wire
from bigfleet.model.machine import MachineState
from bigfleet.ports.ownership import QuotaKey
from bigfleet.services.shard.assembly import Shard
from bigfleet.services.shard.records.machine_class import class_of
from bigfleet.simulation.cluster.cluster import SimulatedCluster
from bigfleet.simulation.cluster.scheduler import adds_domain, is_schedulable
from bigfleet.simulation.hosts.provider import NAME
from bigfleet.simulation.invariants.purchases import unneeded_machines
from bigfleet.simulation.world import World

_FREE = (MachineState.IDLE, MachineState.SPECULATIVE)


def convergence_problems(world: World, converged: bool) -> Iterator[str]:
    """Violated conditions as sentences."""
    if not converged:
        newest = [sum(summary.actions.values()) for summary in world.cycles[-20:]]
        yield f"no convergence although healthy; actions of the last cycles: {newest}"
        return
    removed = world.removed_shards
    for name, host in world.hosts.items():
        if name not in removed:
            if host.shard is None or host.shard.cycle.latest is None:
                yield f"after convergence, shard {name} does not decide"
                return
            yield from _stale_views(world, host.shard)
            latest = host.shard.cycle.latest
            for what in unneeded_machines(latest, world.clusters, world.spec.engine):
                yield f"after convergence, {what}, and no need counts it"
    yield from ownership_problems(world)
    yield from _unfinished_removals(world)
    yield from _wrong_quotas(world)
    for cluster in world.clusters.values():
        yield from _unneeded_nodes(world, cluster)
        if not cluster.gone:
            yield from _unreported_demand(world.shard_of(cluster.name), cluster)
            yield from _unserved(world, cluster)


def ownership_problems(world: World) -> Iterator[str]:
    """Machines that no shard or several shards own, and needless purchases, as sentences."""
    yield from world.ownership.orphans(world.provider.machines(), world.removed_shards)
    if world.purchases.bought > world.purchases.upper_bound():
        yield (
            f"{world.purchases.bought} machines were bought, "
            f"{world.purchases.upper_bound()} would have sufficed"
        )


def is_wasteful(world: World) -> bool:
    """Whether unneeded machines are billed, including those that are held for a while."""
    results = [host.shard.cycle.latest for host in world.hosts.values() if host.shard is not None]
    engine = world.spec.engine
    return any(
        any(unneeded_machines(each, world.clusters, engine)) for each in results if each is not None
    )


def _stale_views(world: World, shard: Shard) -> Iterator[str]:
    for machine in world.provider.machines().values():
        view = shard.inventory.view(machine.id)
        viewed = None if view is None else (view.state, view.cluster)
        if viewed != (machine.state, machine.cluster):
            is_ = f"{machine.state.name} in {machine.cluster or 'no cluster'}"
            yield f"after convergence, the shard believes {machine.id} to be {viewed}, it is {is_}"


def _unneeded_nodes(world: World, cluster: SimulatedCluster) -> Iterator[str]:
    serving = {
        machine.id
        for machine in world.in_state(MachineState.CONFIGURED)
        if machine.cluster == cluster.name
    }
    usable = {
        node.name
        for node in cluster.nodes.values()
        if node.usable or (not (node.dead or node.leaving) and cluster.pods_on(node.name))
    }
    for name in sorted(serving - usable):
        yield f"after convergence, {name} in {cluster.name} is CONFIGURED without a usable Node"
    for name in sorted(cluster.nodes.keys() - serving):
        yield f"after convergence, {name} in {cluster.name} is a Node of no CONFIGURED machine"


def _unfinished_removals(world: World) -> Iterator[str]:
    """Removed clusters of which a shard or the coordinator still knows."""
    registry = world.coordinators.registry if world.coordinators is not None else None
    for cluster in world.clusters.values():
        if cluster.gone:
            for name, host in world.hosts.items():
                if host.shard is not None and cluster.name in host.shard.cycle.removals:
                    left = host.shard.cycle.removals.left().get(cluster.name)
                    yield f"after convergence, {name} still removes {cluster.name}: {left} left"
            if registry is not None and cluster.name in registry.clusters:
                yield f"after convergence, the coordinator knows {cluster.name}, which was removed"


def _wrong_quotas(world: World) -> Iterator[str]:
    """Shards whose quotas differ from those that the coordinator has stored."""
    registry = world.coordinators.registry if world.coordinators is not None else None
    removed = world.removed_shards
    for (_, region), quota in registry.quotas.items() if registry is not None else ():
        for name, host in world.hosts.items():
            has = host.held.slices.get(QuotaKey(NAME, region))
            most = quota.slice_of(name)
            if name not in removed and has != most:
                yield f"after convergence, {name} has a quota of {has} in {region}, not {most}"


def _unreported_demand(shard: Shard | None, cluster: SimulatedCluster) -> Iterator[str]:
    if shard is None:
        yield f"after convergence, no shard serves {cluster.name}"
        return
    asked = shard.needs.demand()
    received = {
        need.key: dict(need.aggregate)
        for need, number in zip(asked.needs, asked.cluster.tolist(), strict=True)
        if shard.needs.cluster_name(number) == cluster.name
    }
    content = cluster.requests.request_cache.aggregate.content(math.inf)
    needs = [need_from_wire(message, cluster.name) for message in content.needs]
    if received != {need.key: dict(need.aggregate) for need in needs}:
        yield f"after convergence, the shard does not know the demand of {cluster.name}"


def _unserved(world: World, cluster: SimulatedCluster) -> Iterator[str]:
    for name, machine_id in unserved_workloads(world, cluster):
        yield f"after convergence, pods of {name} in {cluster.name} wait, and {machine_id} is free"


def unserved_workloads(world: World, cluster: SimulatedCluster) -> Iterator[tuple[str, str]]:
    """Workloads with pending pods, each with a free working machine of the cluster's shard that
    fits them. Of those that are reported as short, gangs are left out, since no domain may hold
    them, and so are machines in a domain that is new to a hard spread term: one that holds fewer
    pods than the others limits them all to its number and `maxSkew`. A domain is new if none of its
    Nodes counts for the term, such as those that the pods do not select.
    """
    bound = [pod for pod in cluster.pods.values() if pod.node]
    shard = world.shard_of(cluster.name)
    if shard is None:
        return
    free = [
        machine
        for state in _FREE
        for machine in world.in_state(state)
        if world.spec.broken.leaves_usable(machine) and shard.inventory.owns(machine.id)
    ]
    truth = world.provider.machines()
    free = [each for each in free if not world.limits.withholds(each, cluster.name, truth)]
    waiting = {pod.workload.name: pod for pod in cluster.unbound()}
    for name, pod in sorted(waiting.items()):
        is_short = cluster.controller.is_short(pod)
        if pod.workload.same_key and is_short:
            continue
        for machine in {class_of(machine): machine for machine in free}.values():
            node = cluster.node_of(machine)
            if is_short and adds_domain(pod.workload, node, cluster.nodes):
                continue
            if is_schedulable(pod, {**cluster.nodes, machine.id: node}, bound):
                yield name, machine.id
                break
