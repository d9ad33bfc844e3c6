"""Writes the CPU usage of the federated workload's pods, as load and pods change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field

import msgspec

from bigfleet.kube.client import APPLY_PATCH, CONNECTION_ERRORS, ApiError, KubeClient, is_transient
from bigfleet.kube.watch import Listed, Watch
from loaddriver.fedhpa import objects
from loaddriver.fedhpa.load_schedule import LoadSchedule
from loaddriver.fedhpa.record import Sample
from loaddriver.substrates.base import Cluster
from loaddriver.substrates.credentials import LOAD_DRIVER

_POLL_INTERVAL_SECONDS = 0.5
_FIELD_MANAGER = {"fieldManager": "scaletest", "force": "true"}


class _Meta(msgspec.Struct, rename="camel"):
    uid: str
    deletion_timestamp: str | None = None


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def is_running(self) -> bool:
        return self.status.phase == "Running" and self.metadata.deletion_timestamp is None


@dataclass
class UsageFeeder:
    """Writes usage from `start` to `stop`; the schedule starts at `began_at`."""

    schedule: LoadSchedule
    began_at: float | None = None
    samples: list[Sample] = field(default_factory=list)
    _clients: dict[str, KubeClient] = field(default_factory=dict)
    _running: dict[str, set[str]] = field(default_factory=dict)
    _written: dict[str, float] = field(default_factory=dict)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def start(self, clusters: Mapping[str, Cluster]) -> None:
        """Start watching pods and writing usage."""
        for name, cluster in clusters.items():
            client = await KubeClient.from_kubeconfig(cluster.kubeconfigs[LOAD_DRIVER])
            self._clients[name] = await self._stack.enter_async_context(client)
            self._running[name] = set()
            self._tasks.append(asyncio.create_task(self._follow(name), name=f"pods of {name}"))
        self._tasks.append(asyncio.create_task(self._feed(), name="load"))

    async def failed(self) -> None:
        """Wait for a task to fail and raise its error."""
        if not self._tasks:
            await asyncio.Event().wait()
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task

    async def stop(self) -> None:
        """Stop; safe if it was never started."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def _follow(self, name: str) -> None:
        running = self._running[name]
        query = {"labelSelector": objects.SELECTOR}
        watch = Watch(self._clients[name], objects.PODS, _Pod, query)
        async with aclosing(watch.follow()) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    running.clear()
                    running |= {pod.metadata.uid for pod in change.items if pod.is_running}
                elif change.item.is_running and not change.deleted:
                    running.add(change.item.metadata.uid)
                else:
                    running.discard(change.item.metadata.uid)

    async def _feed(self) -> None:
        while True:
            sample = self._sample(time.time())
            self.samples.append(sample)
            await asyncio.gather(*(self._write_usage(name, sample) for name in self._clients))
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)

    def _sample(self, now: float) -> Sample:
        schedule = self.schedule
        offered_load = schedule.cores_at(now - self.began_at if self.began_at is not None else 0.0)
        ready = {name: len(running) for name, running in self._running.items()}
        full = ready[schedule.on_premise] >= schedule.pod_slots
        routed_load = schedule.routed_load(offered_load, is_full=full)
        return Sample(at=now, offered_load=dict(offered_load), routed_load=routed_load, ready=ready)

    async def _write_usage(self, name: str, sample: Sample) -> None:
        """Write the usage per pod if it changed; retried at the next poll if it fails."""
        each = round(sample.routed_load[name] / max(1, sample.ready[name]), 6)
        if self._written.get(name) == each:
            return
        try:
            await self._clients[name].patch(
                objects.USAGE, objects.usage(each), APPLY_PATCH, _FIELD_MANAGER
            )
        except (ApiError, *CONNECTION_ERRORS) as error:
            if not is_transient(error):
                raise
        else:
            self._written[name] = each
