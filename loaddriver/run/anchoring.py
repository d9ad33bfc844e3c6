"""Anchors for every cluster of a run, where the profile wants them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from bigfleet.kube.client import KubeClient
from loaddriver.anchors.controller import AnchorController
from loaddriver.anchors.outcomes import GroupOutcome
from loaddriver.judge.gangs import GroupKey
from loaddriver.record.cluster_watch import Reader
from loaddriver.substrates.base import Cluster


@dataclass
class AnchorControllers:
    """Runs beside the load from `start` to `stop`; `failed` returns when one ended by itself."""

    _controllers: dict[str, AnchorController] = field(default_factory=dict)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _clients: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def prepare(self, clusters: Sequence[Cluster], planned: Mapping[GroupKey, int]) -> None:
        """Make the anchors of all clusters with planned groups; `readers` must then be told of
        these clusters.
        """
        for cluster in clusters:
            if not any(name == cluster.name for name, _ in planned):
                continue  # nobody there needs one
            client = await KubeClient.from_kubeconfig(cluster.kubeconfigs["load-driver"])
            await self._clients.enter_async_context(client)
            groups = {
                group: size for (name, group), size in planned.items() if name == cluster.name
            }
            self._controllers[cluster.name] = AnchorController(client, cluster.name, groups)

    @property
    def readers(self) -> Mapping[str, Reader]:
        """Who must hear what the watches of a cluster say, by cluster."""
        return self._controllers

    def start(self) -> None:
        """Begin to look for groups that need an anchor."""
        for anchors in self._controllers.values():
            self._tasks.append(asyncio.create_task(anchors.run(self._stop)))

    async def failed(self) -> None:
        """Never returns while all is well; raises what ended an anchor loop."""
        if not self._tasks:
            await asyncio.Event().wait()
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task

    async def stop(self) -> None:
        """Bind no more."""
        self._stop.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._clients.aclose()

    def outcomes(self) -> list[GroupOutcome]:
        """How each group began, as far as the watches have told; none where anchors were off."""
        return [each for anchors in self._controllers.values() for each in anchors.outcomes()]
