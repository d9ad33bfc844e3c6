"""No autoscaler, but machines that are there from the start.

It shows what kube-scheduler can do with the objects of a scenario: pods that stay pending here
would stay pending under any autoscaler. What a scenario says of machines is not asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from bigfleet.api.kube.client import KubeClient
from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.components import FAKE_NODE_ANNOTATION
from scenarios import fleet
from scenarios.history import History, PodLife
from scenarios.judging import Remarked, Wordings
from scenarios.systems.system import Place
from scenarios.timing import LOOK_SECONDS, WITHIN_SECONDS

# How many of a type stand in each rack.
_IN_EACH_RACK = {"c-2": 4, "m-8": 6, "m-16": 8} | dict.fromkeys(
    ("m-32", "m-128", "r-16", "r-96", "g-32", "batch-16", "data-16"), 1
)
_NODES = "/api/v1/nodes"


class Standing:
    """Nodes of the types that scenarios ask for by name, and of some sizes beside them."""

    name = "machines that are there from the start"
    wordings: Wordings = MappingProxyType({})
    own_kinds: frozenset[str] = frozenset()
    left_out: Mapping[str, str] = MappingProxyType({})
    judged = frozenset(
        {
            *("bound", "finished", "pending", "no_pods", "one_a_node", "rolled_out"),
            *("apart", "together", "spread", "where"),
        }
    )

    async def install(self, client: KubeClient) -> None:
        """It has no kinds of its own."""

    async def start(self, place: Place) -> None:
        """Return once kwok plays all Nodes."""
        self._client = place.client
        bodies = [
            _node(each, zone, rack, number)
            for each in fleet.instance_types()
            for zone, rack in fleet.racks()
            for number in range(_IN_EACH_RACK.get(each.name, 0))
        ]
        await asyncio.gather(*(self._client.create(_NODES, body) for body in bodies))
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                while not await self._ready():  # noqa: ASYNC110  kwok decides
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise SubstrateError(f"{len(bodies)} Nodes: not all became Ready") from None

    async def conditions(self, pods: Sequence[PodLife]) -> Mapping[str, Sequence[Remarked]]:
        """Nobody says anything."""
        return {pod.uid: () for pod in pods}

    async def held(self) -> list[str]:
        """Nobody holds anything."""
        return []

    async def explain(self, seen: History) -> str:
        """What kube-scheduler could choose from."""
        return f"{len(seen.present())} Nodes were there from the start"

    async def _ready(self) -> bool:
        nodes = msgspec.json.decode(await self._client.get(_NODES))["items"]
        return all(_is_ready(node) for node in nodes)


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = node["status"].get("conditions") or ()
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    taints = node["spec"].get("taints") or ()
    return ready and not any(t["key"].startswith("node.kubernetes.io/") for t in taints)


def _node(each: fleet.InstanceType, zone: str, rack: str, number: int) -> dict[str, Any]:
    name = f"{each.name}-{rack}-{number}"
    annotation, value = FAKE_NODE_ANNOTATION
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**each.labels_in(zone, rack), "kubernetes.io/hostname": name},
            "annotations": {annotation: value},
        },
        "spec": {"taints": [dict(taint) for taint in each.taints]},
        "status": {"capacity": each.quantities, "allocatable": each.quantities},
    }
