"""Where the Nodes of a run come from: BigFleet, or static registration before the load.

Other autoscalers are in `loaddriver.karpenter` and `command_system`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from bigfleet.kube.client import KubeClient
from bigfleet.kube.types import TRANSIENT_TAINT_PREFIXES, Conditioned, ObjectList
from loaddriver.errors import InfrastructureError
from loaddriver.run.bigfleet_roles import (
    fleet_roles,
    inventory_of,
    served_clusters,
    start_fleet,
)
from loaddriver.run.inputs import RunInputs
from loaddriver.run.paired_run import ServedNode
from loaddriver.run.running_provider import remove_kubeconfigs, write_kubeconfigs
from loaddriver.sizing.inventory import machines_by_provider, on_premise_machines, save_inventory
from loaddriver.substrates.base import Cluster, Endpoint, RoleSpec, Substrate
from loaddriver.substrates.components import FAKE_NODE_ANNOTATION
from loaddriver.substrates.existing.objects import FLEET, MANAGED

_NODES = "/api/v1/nodes"
_HOSTNAME = "kubernetes.io/hostname"
_BOOTING = {"type": "Ready", "status": "False", "reason": "Booting"}
_REGISTRATIONS_AT_ONCE = 32
_READY_TIMEOUT_SECONDS = 300.0
_POLL_INTERVAL_SECONDS = 0.5


class NodeSource(Protocol):
    """Provides the clusters of a run with Nodes."""

    @property
    def description(self) -> str:
        """What is being started, for the user."""
        ...

    async def start(
        self, substrate: Substrate, clusters: Sequence[Cluster]
    ) -> Mapping[str, Endpoint]:
        """Start the source; return its roles by name. Raises InfrastructureError."""
        ...

    async def stop(self) -> None:
        """End what is not a role of the substrate, while the clusters still run.

        Raises InfrastructureError if something of it remains.
        """
        ...


@dataclass(frozen=True)
class FleetNodeSource:
    """BigFleet with the profile's machines; `scratch` is deleted at the end of the run. `specs` are
    all its roles by name, also those that join later. A provider that is not the harness's has been
    given access to the clusters in `accessed`.
    """

    inputs: RunInputs
    scratch: Path
    specs: dict[str, RoleSpec] = field(default_factory=dict)
    accessed: list[Cluster] = field(default_factory=list)

    @property
    def description(self) -> str:
        """The roles that are started."""
        bigfleet = self.inputs.profile.settings.bigfleet
        shards = f"{bigfleet.shards} shards" if bigfleet.shards > 1 else "shard"
        fleet = self.inputs.profile.settings.fleet
        number = len(fleet.providers)
        providers = f"{number} providers" if number > 1 else "provider"
        if fleet.running_provider:
            providers = f"provider at {fleet.running_provider.address}, which runs already"
        coordinator = f", coordinator x{bigfleet.coordinators}" if bigfleet.coordinators else ""
        per_cluster = "operator and pod controller per cluster"
        return f"starting BigFleet: {providers}{coordinator}, {shards}; {per_cluster}"

    async def start(
        self, substrate: Substrate, clusters: Sequence[Cluster]
    ) -> Mapping[str, Endpoint]:
        """Start every role after its dependencies are ready."""
        settings = self.inputs.profile.settings
        self._provide(clusters)
        served = served_clusters(settings, clusters)
        for cluster in clusters:
            if cluster not in served:
                own = on_premise_machines(self.inputs.profile)
                await _register(
                    cluster, [ServedNode(cluster=cluster.name, machine=each) for each in own]
                )
        self.specs.update(fleet_roles(settings, served, self.scratch))
        return await start_fleet(substrate, settings, served, self.scratch)

    def _provide(self, clusters: Sequence[Cluster]) -> None:
        """Give the harness's providers their machines, or another one access to the clusters."""
        fleet, machines = self.inputs.profile.settings.fleet, self.inputs.machines
        if running := fleet.running_provider:
            if running.kubeconfigs is not None:
                self.accessed.extend(clusters)
                write_kubeconfigs(Path(running.kubeconfigs), clusters)
            return
        providers = fleet.providers
        parts = machines_by_provider(providers, machines) if providers else {"": machines}
        for provider, part in parts.items():
            save_inventory(part, inventory_of(self.scratch, provider))

    async def stop(self) -> None:
        """Take back what was written for another's provider; all processes are roles."""
        running = self.inputs.profile.settings.fleet.running_provider
        if running and running.kubeconfigs is not None:
            remove_kubeconfigs(Path(running.kubeconfigs), self.accessed)


@dataclass(frozen=True)
class StaticNodeSource:
    """Nodes registered before the load, in a run without an autoscaler.

    With `apart` only the load's pods tolerate them, and only the harness's own kwok plays them.
    """

    nodes: Sequence[ServedNode]
    apart: bool = False

    @property
    def description(self) -> str:
        """The number of Nodes."""
        return f"registering {len(self.nodes)} nodes; this run has no autoscaler"

    async def start(
        self,
        substrate: Substrate,  # noqa: ARG002 - no roles to start
        clusters: Sequence[Cluster],
    ) -> Mapping[str, Endpoint]:
        """Register all Nodes; return once pods can be scheduled on them."""
        await asyncio.gather(
            *(
                _register(cluster, [n for n in self.nodes if n.cluster == cluster.name], self.apart)
                for cluster in clusters
            )
        )
        return {}

    async def stop(self) -> None:
        """Nothing: Nodes end with their cluster, or are removed by their label."""


class PresentNodeSource:
    """The Nodes that existing clusters have anyway."""

    description = "the clusters' own nodes are used; this run has no autoscaler"

    async def start(
        self,
        substrate: Substrate,  # noqa: ARG002 - no roles to start
        clusters: Sequence[Cluster],  # noqa: ARG002 - they are as they are
    ) -> Mapping[str, Endpoint]:
        """Nothing is started."""
        return {}

    async def stop(self) -> None:
        """Nothing was started."""


async def _register(cluster: Cluster, nodes: Sequence[ServedNode], apart: bool = False) -> None:
    """Register `nodes`; return once pods can be scheduled on all of them."""
    own = [set_apart(node_object(node)) if apart else node_object(node) for node in nodes]
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
    """The Node as its machine registered it in the paired run, without BigFleet's own labels."""
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


def set_apart(node: dict[str, Any]) -> dict[str, Any]:
    """The Node in a cluster of other people: labelled for removal, and of no use to their pods."""
    key, value = FLEET
    metadata, spec = node["metadata"], node["spec"]
    labels = {**metadata["labels"], key: value, MANAGED[0]: MANAGED[1]}
    taint = {"key": key, "value": value, "effect": "NoSchedule"}
    return {
        **node,
        "metadata": {**metadata, "labels": labels, "annotations": {key: value}},
        "spec": {**spec, "taints": [*spec["taints"], taint]},
    }


class _Taint(msgspec.Struct):
    key: str


class _Spec(msgspec.Struct):
    taints: list[_Taint] = []


class _Meta(msgspec.Struct):
    name: str


class _Node(Conditioned, kw_only=True):
    metadata: _Meta
    spec: _Spec


async def _ready_nodes(client: KubeClient) -> set[str]:
    """The names of Nodes that are Ready and have no transient taint."""
    found = msgspec.json.decode(await client.get(_NODES), type=ObjectList[_Node]).items
    return {
        node.metadata.name
        for node in found
        if not any(taint.key.startswith(TRANSIENT_TAINT_PREFIXES) for taint in node.spec.taints)
        and node.is_true("Ready")
    }
