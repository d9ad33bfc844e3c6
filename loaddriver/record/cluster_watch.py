"""A cluster's shared watches of Pods and Nodes.

Each watch costs CPU for encoding, decryption and decoding on the cores that are being measured,
so all readers share one.
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

# With an audit log, a watch may be late. A change delivered alone costs four times the CPU of one
# delivered with ten others; receipts are delayed by up to this much.
GATHER_SECONDS = 1.0

T = TypeVar("T")
Take = Callable[[Listed[T] | Changed[T], int], None]


class Reader(Protocol):
    """Receives every watch event of a cluster's Pods and Nodes, once, in order.

    The arguments are the events and the time of receipt.
    """

    def take_pods(self, change: Listed[Pod] | Changed[Pod], now_micros: int, /) -> None: ...

    def take_nodes(self, change: Listed[Node] | Changed[Node], now_micros: int, /) -> None: ...


class ClusterWatch:
    """Watches all Pods and Nodes of one cluster; each of `readers` receives every event.

    Changes are batched for `batch_seconds`.
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
        """Also watch CapacityRequests; call it before `followers`."""
        requests = Watch(self._client, f"{GROUP_VERSION}/capacityrequests", CapacityRequest)
        self._follow.append(_SharedWatch(requests, [timestamps.take_requests]))

    def followers(self) -> list[Coroutine[Any, Any, None]]:
        """The watches to run, each until cancelled."""
        return [each.follow() for each in self._follow]

    async def listed_once(self) -> None:
        """Wait until every collection has been listed: later changes are not missed."""
        for each in self._follow:
            await each.listed.wait()

    @property
    def stats(self) -> list[WatchStats]:
        """Statistics of each watch."""
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
