"""Where the Nodes of a run come from: BigFleet, or nobody because they are all there already."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from bigfleet.kube.client import KubeClient
from loaddriver.errors import InfrastructureError
from loaddriver.run.bigfleet_roles import start_fleet
from loaddriver.run.inputs import RunInputs
from loaddriver.run.paired_run import ServedNode
from loaddriver.sizing.inventory import on_premise_machines, save_inventory
from loaddriver.substrates.base import Cluster, Endpoint, Substrate
from loaddriver.substrates.components import FAKE_NODE_ANNOTATION

_NODES = "/api/v1/nodes"
_HOSTNAME = "kubernetes.io/hostname"
_BOOTING = {"type": "Ready", "status": "False", "reason": "Booting"}
# Kubernetes' own, such as not-ready. A machine's own taints stay for as long as it lives.
_TRANSIENT_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_REGISTRATIONS_AT_ONCE = 32
_READY_TIMEOUT_SECONDS = 300.0
_POLL_INTERVAL_SECONDS = 0.5


class NodeSource(Protocol):
    """What provides a run's clusters with Nodes."""

    @property
    def description(self) -> str:
        """What is being started, for people."""
        ...

    async def start(
        self, substrate: Substrate, clusters: Sequence[Cluster]
    ) -> Mapping[str, Endpoint]:
        """Start it; its roles by name. Raises InfrastructureError."""
        ...


@dataclass(frozen=True)
class FleetNodeSource:
    """BigFleet with the profile's machines; `scratch` holds what goes when the run ends."""

    inputs: RunInputs
    scratch: Path

    @property
    def description(self) -> str:
        """Which roles run."""
        bigfleet = self.inputs.profile.settings.bigfleet
        several = f"{bigfleet.shards} shards" if bigfleet.shards > 1 else "shard"
        above = f", coordinator x{bigfleet.coordinators}" if bigfleet.coordinators else ""
        beside = "operator and pod controller per cluster"
        return f"starting BigFleet: provider{above}, {several}; {beside}"

    async def start(
        self, substrate: Substrate, clusters: Sequence[Cluster]
    ) -> Mapping[str, Endpoint]:
        """Start every role once those it depends on are ready."""
        inventory = self.scratch / "inventory.jsonl"
        save_inventory(self.inputs.machines, inventory)
        settings = self.inputs.profile.settings
        on_premise_name = settings.federation.on_premise.cluster if settings.federation else None
        served = [cluster for cluster in clusters if cluster.name != on_premise_name]
        for cluster in clusters:
            if cluster.name == on_premise_name:
                machines = on_premise_machines(self.inputs.profile)
                await _register(
                    cluster, [ServedNode(cluster=on_premise_name, machine=m) for m in machines]
                )
        return await start_fleet(substrate, settings, served, inventory)


@dataclass(frozen=True)
class StaticNodeSource:
    """No BigFleet: all Nodes are registered at once, before the load."""

    nodes: Sequence[ServedNode]

    @property
    def description(self) -> str:
        """How many Nodes there will be."""
        return f"registering {len(self.nodes)} nodes; there is no BigFleet in this run"

    async def start(
        self,
        substrate: Substrate,  # noqa: ARG002 - there are no roles that it could start
        clusters: Sequence[Cluster],
    ) -> Mapping[str, Endpoint]:
        """Return once every Node takes pods."""
        await asyncio.gather(
            *(
                _register(cluster, [node for node in self.nodes if node.cluster == cluster.name])
                for cluster in clusters
            )
        )
        return {}


async def _register(cluster: Cluster, nodes: Sequence[ServedNode]) -> None:
    """Return once every one of these Nodes takes pods."""
    own = [node_object(node) for node in nodes]
    at_once = asyncio.Semaphore(_REGISTRATIONS_AT_ONCE)
    async with await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as client:

        async def create(body: Mapping[str, Any]) -> None:
            async with at_once:
                await client.create(_NODES, body)

        await asyncio.gather(*(create(body) for body in own))
        names = {body["metadata"]["name"] for body in own}
        try:
            async with asyncio.timeout(_READY_TIMEOUT_SECONDS):
                while missing := names - await _ready_nodes(client):  # noqa: ASYNC110 - kwok decides
                    await asyncio.sleep(_POLL_INTERVAL_SECONDS)
        except TimeoutError:
            raise InfrastructureError(
                f"cluster {cluster.name}: {len(missing)} of {len(own)} nodes did not become "
                f"ready within {_READY_TIMEOUT_SECONDS:g} s; see the logs of its kwok"
            ) from None


def node_object(node: ServedNode) -> dict[str, Any]:
    """The Node as its machine registered it in the paired run, but for BigFleet's own marks."""
    machine = node.machine
    annotation, value = FAKE_NODE_ANNOTATION
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": machine.id,
            "labels": {**machine.labels, _HOSTNAME: machine.id},
            "annotations": {annotation: value},
        },
        "spec": {"taints": msgspec.to_builtins(machine.taints)},
        "status": {
            "capacity": machine.resources,
            "allocatable": machine.resources,
            "conditions": [_BOOTING],
        },
    }


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class _Taint(msgspec.Struct):
    key: str


class _Spec(msgspec.Struct):
    taints: list[_Taint] = []


class _Meta(msgspec.Struct):
    name: str


class _Node(msgspec.Struct):
    metadata: _Meta
    spec: _Spec
    status: _Status


class _List(msgspec.Struct):
    items: list[_Node]


async def _ready_nodes(client: KubeClient) -> set[str]:
    """Nodes that are Ready and have no taint that only stays until they are usable."""
    found = msgspec.json.decode(await client.get(_NODES), type=_List).items
    return {
        node.metadata.name
        for node in found
        if not any(taint.key.startswith(_TRANSIENT_TAINTS) for taint in node.spec.taints)
        and any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
    }
