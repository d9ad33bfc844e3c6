"""No autoscaler, but machines that are there from the start.

It shows what kube-scheduler can do with the objects of a scenario: pods that stay pending here
would stay pending under any autoscaler. What a scenario says of machines is not asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from bigfleet.kube.client import KubeClient
from loaddriver.run.node_source import StaticNodeSource
from loaddriver.run.paired_run import ServedNode
from tests.scenarios import fleet
from tests.scenarios.history import History, ObservedPod
from tests.scenarios.judging import Message, MessagePatterns
from tests.scenarios.systems.system import SystemContext

# How many of a type stand in each rack.
_IN_EACH_RACK = {"c-2": 4, "m-8": 6, "m-16": 8} | dict.fromkeys(
    ("m-32", "m-128", "r-16", "r-96", "g-32", "batch-16", "data-16"), 1
)


class StaticNodes:
    """Nodes of the types that scenarios ask for by name, and of some sizes beside them."""

    name = "machines that are there from the start"
    message_patterns: MessagePatterns = MappingProxyType({})
    internal_kinds: frozenset[str] = frozenset()
    left_out: Mapping[str, str] = MappingProxyType({})
    judged = frozenset(
        {
            *("bound", "finished", "pending", "no_pods", "one_per_node", "rolled_out"),
            *("apart", "together", "spread", "where"),
        }
    )

    async def install(self, client: KubeClient) -> None:
        """It has no kinds of its own."""

    async def start(self, context: SystemContext) -> None:
        """Return once every Node takes pods."""
        nodes = [
            ServedNode(cluster=context.cluster.name, machine=machine)
            for each in fleet.instance_types()
            for machine in fleet.machines(each, _IN_EACH_RACK.get(each.name, 0))
        ]
        await StaticNodeSource(nodes).start(context.substrate, [context.cluster])

    async def conditions(self, pods: Sequence[ObservedPod]) -> Mapping[str, Sequence[Message]]:
        """Nobody says anything."""
        return {pod.uid: () for pod in pods}

    async def held(self) -> list[str]:
        """Nobody holds anything."""
        return []

    async def explain(self, seen: History) -> str:
        """What kube-scheduler could choose from."""
        return f"{len(seen.present())} Nodes were there from the start"
