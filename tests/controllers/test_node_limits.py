"""How an operator lists the pods of limited Nodes, without a cluster."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, cast

import msgspec

from bigfleet.api.wellknown import MACHINE_LABEL
from bigfleet.controllers.operator.node_limits import NodeLimits
from bigfleet.controllers.operator.node_types import Node, NodeTaint
from bigfleet.controllers.operator.upcoming_nodes import UpcomingNodeController
from bigfleet.kube.client import ApiError, KubeClient
from bigfleet.kube.watch import Listed


class _Cluster:
    """An API server of cordoned Nodes, each with one pod; it refuses the lists of some."""

    def __init__(self, count: int) -> None:
        self.names = [f"m-{number:03}" for number in range(count)]
        self.asked: Counter[str] = Counter()
        self.refused: set[str] = set()

    async def get(self, path: str, query: Mapping[str, str]) -> bytes:
        assert path == "/api/v1/pods"
        name = query["fieldSelector"].removeprefix("spec.nodeName=")
        self.asked[name] += 1
        if name in self.refused:
            raise ApiError("GET", 500, "InternalError", "by a test")
        pod: dict[str, Any] = {
            "metadata": {"name": "p", "namespace": "n", "uid": name},
            "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]},
        }
        return json.dumps({"items": [pod]}).encode()

    def in_service(self) -> Mapping[str, Collection[NodeTaint]]:
        return dict.fromkeys(self.names, ())

    def knows(self, machine_id: str) -> bool:
        return machine_id in self.names

    def nodes(self) -> list[Node]:
        raw = [
            {
                "metadata": {"name": name, "uid": name, "labels": {MACHINE_LABEL: name}},
                "spec": {"unschedulable": True},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }
            for name in self.names
        ]
        return msgspec.json.decode(json.dumps(raw), type=list[Node])


class _Watch:
    """Lists the Nodes once, without further events."""

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes

    async def follow(self) -> Any:
        yield Listed(self._nodes)
        await asyncio.Event().wait()


async def _following(cluster: _Cluster) -> tuple[NodeLimits, asyncio.Task[None]]:
    client, machines = cast(KubeClient, cluster), cast(UpcomingNodeController, cluster)
    limits = NodeLimits(client, machines, 300.0, lambda: None)
    limits._watch = cast(Any, _Watch(cluster.nodes()))
    task = asyncio.create_task(limits.run())
    await limits.wait_listed()
    return limits, task


async def test_of_a_thousand_cordoned_nodes_a_few_hundred_are_listed_each_time() -> None:
    """The least recently listed first, so that each is listed in turn."""
    cluster = _Cluster(450)
    limits, task = await _following(cluster)
    assert len(await limits.current()) == 200
    assert len(await limits.current()) == 400
    assert len(await limits.current()) == 450
    assert set(cluster.asked.values()) == {1, 2}
    assert cluster.asked.total() == 600
    await limits.current()
    await limits.current()
    assert max(cluster.asked.values()) - min(cluster.asked.values()) <= 1
    task.cancel()


async def test_a_node_that_cannot_be_looked_at_keeps_what_it_held() -> None:
    """One that never could be is not limited at all: to take it for empty would buy another."""
    cluster = _Cluster(2)
    limits, task = await _following(cluster)
    cluster.refused = {"m-001"}
    assert [limit.machine_id for limit in await limits.current()] == ["m-000"]
    cluster.refused = {"m-000"}
    found = {limit.machine_id: limit.resources["cpu"] for limit in await limits.current()}
    assert found == {"m-000": "1", "m-001": "1"}
    task.cancel()
