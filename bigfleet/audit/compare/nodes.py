"""Nodes and UpcomingNodes: is each a machine of its cluster? Pure."""

from __future__ import annotations

from collections.abc import Iterator

from bigfleet.audit.compare.fleet_index import FleetIndex
from bigfleet.audit.differences import Difference, Kind, difference
from bigfleet.audit.observations import SeenNode
from bigfleet.model.machine import BOUND, MachineState

_NOT_COMING = frozenset({MachineState.SPECULATIVE, MachineState.DELETING})


def differences(index: FleetIndex) -> Iterator[Difference]:
    """Differences between the providers' machines and each observed cluster's Nodes."""
    for name, cluster in index.seen.clusters.items():
        for node in cluster.nodes:
            yield from _of_node(index, name, node)
        for upcoming, created in cluster.upcoming.items():
            if why := _left_behind(index, name, upcoming):
                yield difference(
                    Kind.UPCOMING_NODE_LEFT_BEHIND,
                    f"UpcomingNode {upcoming} of cluster {name}",
                    created,
                    provider=why,
                )
    yield from _without_node(index)


def _of_node(index: FleetIndex, cluster: str, node: SeenNode) -> Iterator[Difference]:
    name = f"Node {node.name} of cluster {cluster}"
    machine = index.machines.get(node.machine)
    if machine is None:
        if index.seen.knows_all_machines:
            yield difference(
                Kind.NODE_WITHOUT_MACHINE,
                name,
                node.created,
                node=f"it is machine {node.machine}",
                provider="does not list it",
            )
    elif machine.state not in BOUND:
        yield difference(
            Kind.NODE_OF_FREE_MACHINE, name, node.created, provider=f"it is {machine.state.name}"
        )
    elif machine.cluster != cluster:
        yield difference(
            Kind.NODE_IN_ANOTHER_CLUSTER,
            name,
            node.created,
            node=f"in cluster {cluster}",
            provider=f"{machine.state.name} in {machine.cluster}",
        )


def _without_node(index: FleetIndex) -> Iterator[Difference]:
    clusters = index.seen.clusters
    joined = {name: {node.machine for node in clusters[name].nodes} for name in clusters}
    for machine in index.machines.values():
        if machine.state is not MachineState.CONFIGURED or machine.cluster not in joined:
            continue
        if machine.id not in joined[machine.cluster]:
            yield difference(
                Kind.MACHINE_WITHOUT_NODE,
                f"machine {machine.id}",
                provider=f"CONFIGURED in {machine.cluster}",
                cluster=f"{machine.cluster} has no such Node",
            )


def _left_behind(index: FleetIndex, cluster: str, machine_id: str) -> str:
    """What the provider says of a machine that will not join the cluster; "" if it may.

    An idle machine with metadata is kept for a need, which may be this cluster's.
    """
    machine = index.machines.get(machine_id)
    if machine is None:
        return "does not list it" if index.seen.knows_all_machines else ""
    if machine.cluster not in ("", cluster):
        return f"{machine.state.name} in {machine.cluster}"
    unwanted = machine.state is MachineState.IDLE and not machine.shard_metadata
    return machine.state.name if unwanted or machine.state in _NOT_COMING else ""
