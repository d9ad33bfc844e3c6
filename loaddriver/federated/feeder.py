"""Says in each cluster what the federated workload's pods use, as load and pods change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field

import msgspec

from bigfleet.api.kube.client import APPLY_PATCH, NO_ANSWER, ApiError, KubeClient, is_transient
from bigfleet.api.kube.watch import Listed, Watch
from loaddriver.federated import objects
from loaddriver.federated.course import Course
from loaddriver.federated.record import Sample
from loaddriver.substrates.base import Cluster

_TICK_SECONDS = 0.5
_AS_US = {"fieldManager": "scaletest", "force": "true"}


class _Meta(msgspec.Struct, rename="camel"):
    uid: str
    deletion_timestamp: str | None = None


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def works(self) -> bool:
        return self.status.phase == "Running" and self.metadata.deletion_timestamp is None


@dataclass
class Feeder:
    """Feeds from `start` to `stop`; the course begins at `began_at`, None while it has not."""

    course: Course
    began_at: float | None = None
    samples: list[Sample] = field(default_factory=list)
    _clients: dict[str, KubeClient] = field(default_factory=dict)
    _working: dict[str, set[str]] = field(default_factory=dict)
    _said: dict[str, float] = field(default_factory=dict)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def start(self, clusters: Mapping[str, Cluster]) -> None:
        """Begin to watch and to say."""
        for name, cluster in clusters.items():
            client = await KubeClient.from_kubeconfig(cluster.kubeconfigs["load-driver"])
            self._clients[name] = await self._stack.enter_async_context(client)
            self._working[name] = set()
            self._tasks.append(asyncio.create_task(self._follow(name), name=f"pods of {name}"))
        self._tasks.append(asyncio.create_task(self._feed(), name="load"))

    async def failed(self) -> None:
        """Never returns while all is well; raises what ended it."""
        if not self._tasks:
            await asyncio.Event().wait()
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task

    async def stop(self) -> None:
        """Say nothing more; harmless when it was never started."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    async def _follow(self, name: str) -> None:
        working = self._working[name]
        query = {"labelSelector": objects.SELECTOR}
        watch = Watch(self._clients[name], objects.PODS, _Pod, query)
        async with aclosing(watch.follow()) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    working.clear()
                    working |= {pod.metadata.uid for pod in change.items if pod.works}
                elif change.item.works and not change.deleted:
                    working.add(change.item.metadata.uid)
                else:
                    working.discard(change.item.metadata.uid)

    async def _feed(self) -> None:
        while True:
            sample = self._look(time.time())
            self.samples.append(sample)
            await asyncio.gather(*(self._say(name, sample) for name in self._clients))
            await asyncio.sleep(_TICK_SECONDS)

    def _look(self, now: float) -> Sample:
        course = self.course
        wanted = course.cores_at(now - self.began_at if self.began_at is not None else 0.0)
        ready = {name: len(working) for name, working in self._working.items()}
        full = ready[course.on_premise] >= course.places
        taken = course.taken(wanted, is_full=full)
        return Sample(at=now, wanted=dict(wanted), taken=taken, ready=ready)

    async def _say(self, name: str, sample: Sample) -> None:
        """Write what one pod uses, if that changed; what fails is tried again at the next tick."""
        each = round(sample.taken[name] / max(1, sample.ready[name]), 6)
        if self._said.get(name) == each:
            return
        try:
            await self._clients[name].patch(objects.USAGE, objects.usage(each), APPLY_PATCH, _AS_US)
        except (ApiError, *NO_ANSWER) as error:
            if not is_transient(error):
                raise
        else:
            self._said[name] = each
