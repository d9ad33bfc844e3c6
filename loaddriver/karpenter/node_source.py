"""Starts Karpenter in each cluster of a run, as the source of its Nodes."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bigfleet.api.install import retry_until
from bigfleet.kube.client import KubeClient
from bigfleet.kube.types import Conditioned, ObjectList
from loaddriver.errors import InfrastructureError
from loaddriver.karpenter.guest import IDENTITY
from loaddriver.karpenter.preparation import definitions_of, prepare, write_instance_types
from loaddriver.profile.settings import ProfileSettings
from loaddriver.sizing.inventory import InventoryMachine
from loaddriver.substrates.base import Cluster, Endpoint, RoleSpec, Substrate

_OBSERVE, _METRICS = "observe", "metrics"
_READY_TIMEOUT_SECONDS = 60.0
_NODE_POOLS = "/apis/karpenter.sh/v1/nodepools"


@dataclass(frozen=True)
class KarpenterNodeSource:
    """Karpenter with the fleet's instance types; `scratch` is deleted at the end of the run.

    In clusters of other people its Nodes are for the load alone, and the substrate removes what it
    leaves. Without a `binary` it runs in pods already, which have prepared their clusters.
    """

    settings: ProfileSettings
    machines: Sequence[InventoryMachine]
    binary: Path | None
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
        definitions = None
        if self.binary is not None:
            write_instance_types(self.machines, types)
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
        definitions: Sequence[Mapping[str, Any]] | None,
    ) -> None:
        async with await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as client:
            if definitions is not None:
                apart = not substrate.capabilities.own_clusters
                async with _patience(cluster):
                    await prepare(client, definitions, self.machines, self.settings, apart=apart)
            await substrate.start_role(
                karpenter_role(self.settings, cluster.name, types, self.binary)
            )
            async with _patience(cluster):
                await retry_until(lambda: _ready(client))


def karpenter_role(
    settings: ProfileSettings, cluster: str, types: Path, binary: Path | None
) -> RoleSpec:
    """The Karpenter of a cluster, with the file of its instance types."""
    preferences = settings.karpenter.preferences
    return RoleSpec(
        f"{cluster}/karpenter",
        [
            *("--health-probe-port", "{observe-number}", "--metrics-port", "{metrics-number}"),
            *("--disable-leader-election=true", "--instance-types-file-path", "{types}"),
            *("--preference-policy", preferences.capitalize()),
        ],
        program=binary,
        ports=(_OBSERVE, _METRICS),
        observe_port=_OBSERVE,
        cluster=cluster,
        identity=IDENTITY,
        inputs={"types": types},
    )


def _definitions(binary: Path) -> list[dict[str, Any]]:
    printed = subprocess.run([str(binary), "--crds"], capture_output=True, check=True, timeout=60)
    return definitions_of(printed.stdout)


async def _ready(client: KubeClient) -> bool:
    """Whether there are NodePools, and Karpenter has found nothing wrong with any."""
    content = await client.get(_NODE_POOLS)
    pools = msgspec.json.decode(content, type=ObjectList[Conditioned]).items
    return bool(pools) and all(pool.is_true("Ready") for pool in pools)


@asynccontextmanager
async def _patience(cluster: Cluster) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_READY_TIMEOUT_SECONDS):
            yield
    except TimeoutError:
        raise InfrastructureError(
            f"cluster {cluster.name}: Karpenter's NodePools were not ready within "
            f"{_READY_TIMEOUT_SECONDS:g} s; see its log"
        ) from None
