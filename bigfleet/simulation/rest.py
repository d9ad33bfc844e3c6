"""What a healthy world must be like once it has come to rest."""

from __future__ import annotations

from collections.abc import Iterator

from bigfleet.model.machine import MachineState
from bigfleet.services.shard.assembly import Shard
from bigfleet.simulation.cluster import Cluster
from bigfleet.simulation.world import World


def unrest(world: World, rests: bool, tidy: bool) -> Iterator[str]:
    """Sentences about what is not in order; `tidy` worlds must also have bound what they can."""
    if not rests:
        newest = [sum(cycled.actions.values()) for cycled in world.cycles[-20:]]
        yield f"no rest though healthy; actions of the last cycles: {newest}"
        return
    shard = world.shard
    if shard is None or shard.cycle.latest is None:
        yield "at rest, there is no shard that decides"
        return
    yield from _wrong_beliefs(world, shard)
    for cluster in world.clusters.values():
        yield from _useless_machines(world, cluster)
        yield from _unheard_demand(shard, cluster)
        if tidy:
            yield from _forgotten_pods(shard, cluster)


def _wrong_beliefs(world: World, shard: Shard) -> Iterator[str]:
    for machine in world.provider.machines().values():
        view = shard.inventory.view(machine.id)
        believed = None if view is None else (view.state, view.cluster)
        if believed != (machine.state, machine.cluster):
            is_ = f"{machine.state.name} in {machine.cluster or 'no cluster'}"
            yield f"at rest, the shard believes {machine.id} to be {believed}, it is {is_}"


def _useless_machines(world: World, cluster: Cluster) -> Iterator[str]:
    serving = {
        machine.id
        for machine in world.in_state(MachineState.CONFIGURED)
        if machine.cluster == cluster.name
    }
    usable = {node.name for node in cluster.nodes.values() if node.usable}
    for name in sorted(serving - usable):
        yield f"at rest, {name} in {cluster.name} is CONFIGURED without a usable Node"
    for name in sorted(cluster.nodes.keys() - serving):
        yield f"at rest, {name} in {cluster.name} is a Node for nothing"


def _unheard_demand(shard: Shard, cluster: Cluster) -> Iterator[str]:
    asked = shard.needs.demand()
    name = shard.sessions.of(cluster.name)
    heard = {
        need.key: dict(need.aggregate)
        for need, number in zip(asked.needs, asked.cluster.tolist(), strict=True)
        if shard.needs.cluster_name(number) == cluster.name
    }
    wanted = {need.key: dict(need.aggregate) for need in cluster.ledger.aggregate.needs()}
    if name is None or heard != wanted:
        yield f"at rest, the shard has not heard what {cluster.name} needs"


def _forgotten_pods(shard: Shard, cluster: Cluster) -> Iterator[str]:
    """Pods that wait though no need of their cluster is short."""
    latest = shard.cycle.latest
    short = {latest.keys[s.need].cluster for s in latest.decision.shortfalls} if latest else set()
    if cluster.name not in short and cluster.unbound():
        names = sorted({pod.workload.name for pod in cluster.unbound()})
        yield f"at rest, pods of {names} in {cluster.name} wait though nothing is short there"
