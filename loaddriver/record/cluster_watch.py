"""The one watch of Pods and the one of Nodes in a cluster, for whoever must know of them.

An API server writes each change once for every watch, and each of them is received, decrypted and
decoded on the cores that are being measured: so all readers share one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from bigfleet.api.install import GROUP_VERSION
from bigfleet.kube.client import KubeClient
from bigfleet.kube.watch import Changed, Listed, Watch, WatchStats
from loaddriver.record.watched import CapacityRequest, Node, Pod
from loaddriver.record.watching import WatchTimestamps, now_micros

# Beside an audit log, a watch need not be punctual. A change of its own costs four times the CPU of
# one that comes with ten others; receipts are up to this much later for it.
GATHER_SECONDS = 1.0

T = TypeVar("T")
Take = Callable[[Listed[T] | Changed[T], int], None]


class Reader(Protocol):
    """Hears all that watches say of all Pods and Nodes of a cluster, each change once, in order.

    Both are handed what was received and the moment of receipt.
    """

    def take_pods(self, change: Listed[Pod] | Changed[Pod], now_micros: int, /) -> None: ...

    def take_nodes(self, change: Listed[Node] | Changed[Node], now_micros: int, /) -> None: ...


class ClusterWatch:
    """Follows all Pods and Nodes of one cluster for its `readers`, of whom each hears everything.

    Changes are left to gather for `batch_seconds`.
    """

    def __init__(
        self, client: KubeClient, readers: Sequence[Reader], batch_seconds: float = GATHER_SECONDS
    ) -> None:
        self.batch_seconds = batch_seconds
        pods = Watch(client, "/api/v1/pods", Pod, batch_seconds=batch_seconds)
        nodes = Watch(client, "/api/v1/nodes", Node, batch_seconds=batch_seconds)
        self._client = client
        self._follow: list[_SharedWatch[Any]] = [
            _SharedWatch(pods, [reader.take_pods for reader in readers]),
            _SharedWatch(nodes, [reader.take_nodes for reader in readers]),
        ]

    def add_requests(self, timestamps: WatchTimestamps) -> None:
        """Follow the CapacityRequests of the cluster, too; call it before anything is followed."""
        requests = Watch(self._client, f"{GROUP_VERSION}/capacityrequests", CapacityRequest)
        self._follow.append(_SharedWatch(requests, [timestamps.take_requests]))

    def followers(self) -> list[Coroutine[Any, Any, None]]:
        """What must run, each until cancelled."""
        return [each.follow() for each in self._follow]

    async def listed_once(self) -> None:
        """Return once every collection has been listed, so that nothing new can be missed."""
        for each in self._follow:
            await each.listed.wait()

    @property
    def stats(self) -> list[WatchStats]:
        """How each watch fared."""
        return [each.watch.stats for each in self._follow]


@dataclass
class _SharedWatch(Generic[T]):
    watch: Watch[T]
    takers: Sequence[Take[T]]
    listed: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self) -> None:
        async for change in self.watch.follow():
            now = now_micros()
            for take in self.takers:
                take(change, now)
            self.listed.set()
