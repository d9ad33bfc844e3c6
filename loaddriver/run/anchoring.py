"""Anchors for every cluster of a run, where the profile wants them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from bigfleet.api.kube.client import KubeClient
from loaddriver.anchors.loop import Anchors
from loaddriver.anchors.outcomes import GroupOutcome
from loaddriver.judge.gangs import GroupKey
from loaddriver.substrates.base import Cluster


@dataclass
class Anchoring:
    """Runs beside the load from `start` to `finish`; `failed` returns when one ended by itself."""

    _anchors: list[Anchors] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _clients: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def start(self, clusters: Sequence[Cluster], planned: Mapping[GroupKey, int]) -> None:
        """Begin to look for groups that need an anchor."""
        for cluster in clusters:
            if not any(name == cluster.name for name, _ in planned):
                continue  # nobody there needs one
            client = await KubeClient.from_kubeconfig(cluster.kubeconfigs["load-driver"])
            await self._clients.enter_async_context(client)
            groups = {
                group: size for (name, group), size in planned.items() if name == cluster.name
            }
            anchors = Anchors(client, cluster.name, groups)
            self._anchors.append(anchors)
            self._tasks.append(asyncio.create_task(anchors.run(self._stop)))

    async def failed(self) -> None:
        """Never returns while all is well; raises what ended an anchor loop."""
        if not self._tasks:
            await asyncio.Event().wait()
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task

    async def finish(self) -> list[GroupOutcome]:
        """Stop, and say how each group began; empty where anchors were off."""
        self._stop.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._clients.aclose()
        return [outcome for anchors in self._anchors for outcome in anchors.outcomes()]
