"""One recorder per cluster, running beside the load."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from bigfleet.kube.client import ApiError, KubeClient
from bigfleet.model.errors import BigFleetError
from loaddriver.errors import InfrastructureError
from loaddriver.record.cluster_watch import Reader
from loaddriver.record.live_counts import LiveCounts
from loaddriver.record.recorder import ClusterRecorder, Observations
from loaddriver.run.failures import guarded
from loaddriver.substrates.base import Cluster

_START_TIMEOUT_SECONDS = 30.0


class ClusterRecorders:
    """The recorders of all clusters; `finish` returns what they observed."""

    def __init__(self) -> None:
        self._clients: list[KubeClient] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._recorders: list[ClusterRecorder] = []
        self._catch_ups: list[Callable[[], Awaitable[None]]] = []

    async def start(self, clusters: Sequence[Cluster], readers: Mapping[str, Reader]) -> None:
        """Return once every cluster is watched. `readers` get the watch events too, by cluster."""
        for cluster in clusters:
            client = await KubeClient.from_kubeconfig(cluster.kubeconfigs["recorder"])
            self._clients.append(client)
            others = [readers[cluster.name]] if cluster.name in readers else []
            recorder = ClusterRecorder(
                cluster.name,
                client,
                cluster.audit_log,
                others,
                capacity_requests=cluster.capacity_requests,
                probe_namespace=cluster.probe_namespace,
            )
            self._recorders.append(recorder)
            if cluster.catch_up is not None:
                self._catch_ups.append(cluster.catch_up)
            self._tasks.append(asyncio.create_task(recorder.run(), name=f"record {cluster.name}"))
        try:
            async with asyncio.timeout(_START_TIMEOUT_SECONDS):
                await guarded(self._started(), self.failed())
        except TimeoutError:
            raise InfrastructureError(
                f"could not watch the clusters within {_START_TIMEOUT_SECONDS:g} s; see their logs"
            ) from None

    async def _started(self) -> None:
        await asyncio.gather(*(recorder.started() for recorder in self._recorders))

    @property
    def live_counts_by_cluster(self) -> list[LiveCounts]:
        """Live counts, one per cluster."""
        return [recorder.live_counts for recorder in self._recorders]

    def nodes(self) -> tuple[int, int]:
        """The numbers of existing and of ready Nodes, over all clusters."""
        counts = [recorder.nodes() for recorder in self._recorders]
        return sum(existing for existing, _ in counts), sum(ready for _, ready in counts)

    async def failed(self) -> None:
        """Wait for a recorder to fail and raise its error."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            try:
                await task
            except* (ApiError, BigFleetError, OSError) as errors:
                raise InfrastructureError(f"{task.get_name()}: {errors.exceptions[0]}") from errors
        raise InfrastructureError("a recorder stopped unexpectedly")

    async def finish(self) -> list[Observations]:
        """Stop recording and return the observations; safe if nothing was started."""
        await asyncio.gather(*(recorder.caught_up() for recorder in self._recorders))
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError, Exception):  # `failed` raised its error
                await task
        for recorder in self._recorders:
            await recorder.ask_for_counts()
        for catch_up in self._catch_ups:  # what the servers counted must be in the logs
            await catch_up()
        for client in self._clients:
            await client.close()
        return [recorder.finish() for recorder in self._recorders]
