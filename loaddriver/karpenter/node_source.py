"""Starts Karpenter in each cluster of a run, as the source of its Nodes."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bigfleet.api.install import retry_until
from bigfleet.kube.client import NOT_FOUND, ApiError, KubeClient
from bigfleet.kube.types import Conditioned, ObjectList
from loaddriver.errors import InfrastructureError
from loaddriver.karpenter.guest import IDENTITY, RBAC
from loaddriver.karpenter.objects import instance_types, node_class, node_pools
from loaddriver.profile.settings import ProfileSettings
from loaddriver.sizing.inventory import InventoryMachine
from loaddriver.substrates.applying import apply
from loaddriver.substrates.base import Cluster, Endpoint, RoleSpec, Substrate
from loaddriver.substrates.existing.definitions import COLLECTION
from loaddriver.substrates.existing.objects import MANAGED

_OBSERVE, _METRICS = "observe", "metrics"
_READY_TIMEOUT_SECONDS = 60.0
_NODE_POOLS = "/apis/karpenter.sh/v1/nodepools"


@dataclass(frozen=True)
class KarpenterNodeSource:
    """Karpenter with the fleet's instance types; `scratch` is deleted at the end of the run.

    In clusters of other people its Nodes are for the load alone, and the substrate removes what it
    leaves.
    """

    settings: ProfileSettings
    machines: Sequence[InventoryMachine]
    binary: Path
    scratch: Path

    @property
    def description(self) -> str:
        """What is started."""
        return (
            "starting Karpenter with its kwok provider, one per cluster; this run has no BigFleet"
        )

    async def start(
        self, substrate: Substrate, clusters: Sequence[Cluster]
    ) -> Mapping[str, Endpoint]:
        """Start it in each cluster, and wait until it may buy. It has no roles of BigFleet's."""
        types = self.scratch / "instance-types.json"
        types.write_bytes(msgspec.json.encode(instance_types(self.machines)))
        definitions = await asyncio.to_thread(_definitions, self.binary)
        await asyncio.gather(
            *(self._serve(substrate, cluster, types, definitions) for cluster in clusters)
        )
        return {}

    async def stop(self) -> None:
        """Nothing: Karpenter is a process of the substrate."""

    async def _serve(
        self,
        substrate: Substrate,
        cluster: Cluster,
        types: Path,
        definitions: Iterable[Mapping[str, Any]],
    ) -> None:
        apart = not substrate.capabilities.own_clusters
        async with await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as client:
            if apart:
                await _define(client, definitions)
            else:
                await apply(client, [*definitions, *yaml.safe_load_all(RBAC.read_text())])
            pools = list(node_pools(self.machines, self.settings, apart=apart))
            await _until(lambda: _applied(client, node_class(self.settings), *pools), cluster)
            await substrate.start_role(self._role(cluster, types))
            await _until(lambda: _ready(client, len(pools)), cluster)

    def _role(self, cluster: Cluster, types: Path) -> RoleSpec:
        preferences = self.settings.karpenter.preferences
        return RoleSpec(
            f"{cluster.name}/karpenter",
            [
                *("--health-probe-port", "{observe-number}", "--metrics-port", "{metrics-number}"),
                *("--disable-leader-election", "--instance-types-file-path", "{types}"),
                *("--preference-policy", preferences.capitalize()),
            ],
            program=self.binary,
            ports=(_OBSERVE, _METRICS),
            observe_port=_OBSERVE,
            cluster=cluster.name,
            identity=IDENTITY,
            inputs={"types": types},
        )


def _definitions(binary: Path) -> list[dict[str, Any]]:
    printed = subprocess.run([str(binary), "--crds"], capture_output=True, check=True, timeout=60)
    definitions: list[dict[str, Any]] = msgspec.json.decode(printed.stdout)
    for each in definitions:
        each.pop("status", None)
    return definitions


async def _define(client: KubeClient, definitions: Iterable[Mapping[str, Any]]) -> None:
    """Create them, to be found by their label. ApiError if one is there: it is another's."""
    for each in definitions:
        labels = {**each["metadata"].get("labels", {}), MANAGED[0]: MANAGED[1]}
        await client.create(
            COLLECTION, {**each, "metadata": {**each["metadata"], "labels": labels}}
        )


async def _applied(client: KubeClient, *manifests: Mapping[str, Any]) -> bool:
    """Apply them; False while the API server does not serve their kinds yet."""
    try:
        await apply(client, manifests)
    except ApiError as error:
        if error.status == NOT_FOUND:
            return False
        raise
    return True


async def _ready(client: KubeClient, count: int) -> bool:
    content = await client.get(_NODE_POOLS)
    pools = msgspec.json.decode(content, type=ObjectList[Conditioned]).items
    return sum(pool.is_true("Ready") for pool in pools) == count


async def _until(condition: Callable[[], Awaitable[bool]], cluster: Cluster) -> None:
    try:
        async with asyncio.timeout(_READY_TIMEOUT_SECONDS):
            await retry_until(condition)
    except TimeoutError:
        raise InfrastructureError(
            f"cluster {cluster.name}: Karpenter's NodePools were not ready within "
            f"{_READY_TIMEOUT_SECONDS:g} s; see its log"
        ) from None
