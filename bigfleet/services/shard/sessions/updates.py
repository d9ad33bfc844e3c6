"""Messages to operators about the machines of their clusters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bigfleet.api.machine_codec import taints_to_wire
from bigfleet.api.v1alpha1 import provider_pb2, shard_pb2
from bigfleet.model import resources
from bigfleet.model.machine import MachineState
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.services.shard.records.orders import Orders
from bigfleet.services.shard.records.views import MachineView, Transition


def of_cluster(inventory: Inventory, cluster: str) -> Iterator[shard_pb2.ShardMessage]:
    """The present state of every machine bound to `cluster`."""
    for view in inventory.bound_to(cluster):
        yield of_machine(view, inventory.provider_name(view.provider), cluster)


def of_transition(
    inventory: Inventory, transition: Transition
) -> Iterator[tuple[str, shard_pb2.ShardMessage]]:
    """Messages about a transition, each with its cluster: the one that the machine is in, and the
    one that it has left.
    """
    if transition.cluster == transition.former_cluster == "":
        return
    view = inventory.view(transition.machine_id)
    name = inventory.provider_name(transition.provider)
    if view is not None and transition.cluster:
        yield transition.cluster, of_machine(view, name, transition.cluster)
    if transition.former_cluster in ("", transition.cluster):
        return
    if view is None or transition.cluster:
        yield transition.former_cluster, of_vanished(transition, name)
    else:
        yield transition.former_cluster, of_machine(view, name, transition.former_cluster)


def of_asked(
    inventory: Inventory, orders: Orders, cluster: str, machine_id: str
) -> Sequence[shard_pb2.ShardMessage] | None:
    """The answer to `cluster`'s inquiry about a machine; empty for its own machines, which are
    replayed anyway. None while the state is not settled: the machine is unknown, an order for it
    is under way, or two providers list it.

    A machine in use elsewhere, or being created for another cluster, is reported as released.
    """
    view = inventory.view(machine_id)
    if view is None or orders.of(machine_id) is not None:
        return None
    if machine_id in inventory.holds.colliding:
        return None
    made_for_it = view.state is MachineState.CREATING and view.need and view.need.cluster == cluster
    if view.cluster == cluster or made_for_it:
        return ()
    if view.cluster or view.state is MachineState.CREATING:
        view = replace(view, state=MachineState.SPECULATIVE)
    return (of_machine(view, inventory.provider_name(view.provider), cluster),)


def of_machine(view: MachineView, provider_name: str, cluster: str) -> shard_pb2.ShardMessage:
    """The state of a machine, for the cluster that it is in or has just left."""
    update = shard_pb2.NodeStateUpdate(
        supersedes_key=_key(view.id),
        machine_id=view.id,
        cluster_id=cluster,
        state=provider_pb2.MachineState.ValueType(view.state),
        node_name=view.id,
        provider_id=_provider_id(provider_name, view.id),
        last_error=view.last_error,
        labels=view.machine_class.labels_of(view.id),
        resources=provider_pb2.Resources(
            resources=resources.texts(dict(view.machine_class.resources))
        ),
        taints=taints_to_wire(view.machine_class.taints),
    )
    return shard_pb2.ShardMessage(node_state_update=update)


def of_vanished(transition: Transition, provider_name: str) -> shard_pb2.ShardMessage:
    """A machine that its cluster has lost: FAILED, because there is no state for a gone one."""
    update = shard_pb2.NodeStateUpdate(
        supersedes_key=_key(transition.machine_id),
        machine_id=transition.machine_id,
        cluster_id=transition.former_cluster,
        state=provider_pb2.MachineState.ValueType(MachineState.FAILED),
        node_name=transition.machine_id,
        provider_id=_provider_id(provider_name, transition.machine_id),
        last_error=transition.last_error or f"it is now in cluster {transition.cluster}",
    )
    return shard_pb2.ShardMessage(node_state_update=update)


def _key(machine_id: str) -> str:
    return f"node:{machine_id}"


def _provider_id(provider_name: str, machine_id: str) -> str:
    return f"bigfleet://{provider_name}/{machine_id}"
