"""The operator's view of its Nodes: production's rules on simulated Nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from bigfleet.api.limit_codec import NodeLimit, limits_to_wire
from bigfleet.api.v1alpha1 import capacity_pb2
from bigfleet.api.wellknown import MACHINE_LABEL, RECLAIM_DEADLINE
from bigfleet.controllers.operator.node_health import Machines, NodeHealth, UnfitMachine
from bigfleet.controllers.operator.node_types import Node, NodeSpec, NodeStatus, NodeTaint
from bigfleet.kube.pod_types import Condition
from bigfleet.kube.types import ObjectMeta
from bigfleet.model import resources
from bigfleet.simulation.cluster.cluster import SimulatedCluster
from bigfleet.simulation.cluster.scheduler import SimulatedNode

# Shorter than a world must rest until it counts as settled; production waits five minutes.
NODE_READY_TIMEOUT_SECONDS = 60.0


class SimulatedNodeLimits:
    """Which machines of `cluster` take no new pods, for its roll-ups. `in_service` returns those
    that the shard reports as serving it, `now` is in seconds.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        in_service: Callable[[], Machines],
        now: Callable[[], float],
    ) -> None:
        self._cluster, self._in_service, self._now = cluster, in_service, now
        self._health = NodeHealth(NODE_READY_TIMEOUT_SECONDS)
        self._broken: set[str] = set()
        cluster.on_node_deleted = self._deleted

    def forget(self, machine_id: str) -> None:
        """Reset what is known of a machine that joins again."""
        self._health.forget(machine_id)

    def is_broken(self, machine_id: str) -> bool:
        """Whether the last roll-up reported the machine as broken."""
        return machine_id in self._broken

    async def current(self) -> Sequence[capacity_pb2.NodeLimit]:
        """The current limits."""
        for node in self._cluster.nodes.values():
            self._health.put(_as_read(node))
        machines, now = self._in_service(), self._now()
        unfit_machines = self._health.unfit_machines(machines, now, now)
        self._broken = {unfit.machine_id for unfit in unfit_machines if unfit.broken}
        limits = sorted((self._limit(each) for each in unfit_machines), key=lambda x: x.machine_id)
        return list(limits_to_wire(limits))

    def _deleted(self, node: SimulatedNode) -> None:
        self._health.put(_as_read(node))
        self._health.remove(node.name, self._in_service())
        self._cluster.requests.request_cache.changed.set()

    def _limit(self, unfit: UnfitMachine) -> NodeLimit:
        pods = self._cluster.pods_on(unfit.machine_id) if unfit.counts_pods else []
        held = resources.add([dict(pod.workload.demand.unit) for pod in pods])
        amounts = tuple(sorted((name, amount) for name, amount in held.items() if amount))
        return NodeLimit(unfit.machine_id, unfit.reason, unfit.message, amounts, unfit.broken)


def _as_read(node: SimulatedNode) -> Node:
    """The Node as the API server returns it."""
    taints = [NodeTaint(taint.key, taint.value, taint.effect) for taint in node.taints]
    return Node(
        ObjectMeta(
            node.name,
            uid=f"{node.name} of {node.created}",
            labels={MACHINE_LABEL: node.name},
            annotations={RECLAIM_DEADLINE: "0"} if node.leaving else {},
            creation_timestamp=datetime.fromtimestamp(node.created, UTC),
        ),
        NodeSpec(unschedulable=node.cordoned, taints=taints),
        NodeStatus([Condition("Ready", "False" if node.dead else "True")]),
    )
