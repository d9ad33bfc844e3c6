"""How late the receipts of a watch are, measured beside the load with requests of our own.

A pod that no scheduler takes is annotated every second. The API server commits the change after
the request was sent, so the time from sending it to receiving its event by the recorder's own
watch is an upper bound of how late that receipt is. Both times are of this machine's clock.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

from bigfleet.kube.client import KubeClient, is_transient
from bigfleet.kube.watch import Changed, Listed
from loaddriver.record.watched import Node, Pod

_NAME = "stamp-probe"
_NUMBER = "scaletest.bigfleet/probe"
_INTERVAL_SECONDS = 1.0


class StampProbe:
    """Reads the watch of one cluster while `run` writes; `errors_seconds` has a value for each
    write whose event has arrived.
    """

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.errors_seconds: list[float] = []
        self._namespace = namespace
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._client = client
        self._sent_micros: dict[str, int] = {}

    async def run(self) -> None:
        """Write until cancelled. A write that fails in passing gives no value."""
        await self._client.create(self._pods, _pod())
        for number in itertools.count(1):
            await asyncio.sleep(_INTERVAL_SECONDS)
            self._sent_micros[str(number)] = time.time_ns() // 1000
            body = {"metadata": {"annotations": {_NUMBER: str(number)}}}
            try:
                await self._client.patch(f"{self._pods}/{_NAME}", body)
            except Exception as error:
                if not is_transient(error):
                    raise

    def take_pods(self, change: Listed[Pod] | Changed[Pod], now_micros: int) -> None:
        """Note the arrival of a write."""
        if not isinstance(change, Changed):
            return
        meta = change.item.metadata
        if (meta.namespace, meta.name) != (self._namespace, _NAME):
            return
        sent = self._sent_micros.pop(meta.annotations.get(_NUMBER, ""), None)
        if sent is not None:
            self.errors_seconds.append((now_micros - sent) / 1e6)

    def take_nodes(self, change: Listed[Node] | Changed[Node], now_micros: int) -> None:
        """Nodes are not probed: they arrive by a watch of the same kind."""


def _pod() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _NAME},
        "spec": {
            "schedulerName": _NAME,  # nobody's
            "automountServiceAccountToken": False,
            "containers": [{"name": "probe", "image": "none"}],
        },
    }
