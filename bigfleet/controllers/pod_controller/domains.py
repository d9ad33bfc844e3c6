"""Where a Node stands: the values of its labels."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from bigfleet.api.kube.client import NOT_FOUND, ApiError, KubeClient

_REMEMBERED = 1_000


class _Metadata(msgspec.Struct):
    labels: dict[str, str] = {}


class _Node(msgspec.Struct):
    metadata: _Metadata


class Domains:
    """Asks once for each Node: where a machine stands never changes."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._labels: OrderedDict[str, dict[str, str]] = OrderedDict()

    async def of(self, node: str, topology_key: str) -> str | None:
        """The Node's domain; None when it has gone or is in none. ApiError for other answers."""
        if node not in self._labels:
            try:
                raw = await self._client.get(f"/api/v1/nodes/{node}")
            except ApiError as error:
                if error.status != NOT_FOUND:
                    raise
                return None
            self._labels[node] = msgspec.json.decode(raw, type=_Node).metadata.labels
            if len(self._labels) > _REMEMBERED:
                self._labels.popitem(last=False)
        return self._labels[node].get(topology_key)
