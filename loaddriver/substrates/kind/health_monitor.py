"""Monitors the containers of running clusters for undeclared exits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from bigfleet.kube.client import CONNECTION_ERRORS, ApiError
from loaddriver.substrates.kind.cluster import KindCluster
from loaddriver.substrates.kind.containers import Container, Exit, exits

_POLL_INTERVAL_SECONDS = 1.0
# Long enough for a busy API server to respond.
_SILENCE_SECONDS = 10.0


class HealthMonitor:
    """Monitors all clusters of a run. Create it inside a running event loop; `stop` it."""

    def __init__(self) -> None:
        self._living: dict[str, dict[str, str]] = {}
        self._expected: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._first: asyncio.Future[tuple[KindCluster, Exit]] = (
            asyncio.get_running_loop().create_future()
        )

    def watch(self, cluster: KindCluster, containers: Iterable[Container]) -> None:
        """Start monitoring the running containers of a cluster."""
        name = cluster.layout.cluster
        self._living[name] = {each.component: each.identity for each in containers}
        self._tasks.append(asyncio.create_task(self._follow(cluster), name=f"health of {name}"))

    def track(self, cluster: str, container: Container) -> None:
        """Monitor a component from now on."""
        self._expected.discard(container.component)
        self._living[cluster][container.component] = container.identity

    def expect(self, component: str) -> None:
        """Declare the next exit of a component."""
        self._expected.add(component)

    async def first_exit(self) -> tuple[KindCluster, Exit]:
        """Wait for the first undeclared exit; later calls return the same."""
        return await asyncio.shield(self._first)

    @property
    def failed_cluster(self) -> KindCluster | None:
        """The cluster of that exit, once known."""
        return self._first.result()[0] if self._first.done() else None

    async def stop(self) -> None:
        """Stop monitoring."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, cluster: KindCluster) -> None:
        loop = asyncio.get_running_loop()
        answered = loop.time()
        while not self._first.done():
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
            try:
                seen = await cluster.containers()
            except (ApiError, *CONNECTION_ERRORS):
                await self._judge_silence(cluster, loop.time() - answered)
                continue
            answered = loop.time()
            for exit in exits(self._living[cluster.layout.cluster], seen):
                self._note(cluster, exit, seen)

    async def _judge_silence(self, cluster: KindCluster, seconds: float) -> None:
        name = cluster.layout.cluster
        if not await cluster.node.runs():
            self._report(cluster, Exit(f"{name}/node", None))
        elif seconds > _SILENCE_SECONDS and f"{name}/kube-apiserver" not in self._expected:
            self._report(cluster, Exit(f"{name}/kube-apiserver", None))

    def _note(self, cluster: KindCluster, exit: Exit, seen: dict[str, Container]) -> None:
        if exit.component not in self._expected:
            self._report(cluster, exit)
            return
        again = seen.get(exit.component)
        living = self._living[cluster.layout.cluster]
        if again is not None and again.identity != living[exit.component]:
            self.track(cluster.layout.cluster, again)

    def _report(self, cluster: KindCluster, exit: Exit) -> None:
        if not self._first.done():
            self._first.set_result((cluster, exit))
