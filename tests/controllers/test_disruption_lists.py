"""What an inquiry costs a busy API server: a current list may make it read every Pod."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import pytest

from bigfleet.api.v1alpha1.shard_pb2 import DisruptionInquiry
from bigfleet.api.wellknown import MACHINE_LABEL
from bigfleet.controllers.operator import disruptions
from bigfleet.controllers.operator.disruption_reviews import NodeDisruption
from bigfleet.controllers.operator.disruptions import Disruptions
from bigfleet.kube.client import NOT_FOUND, ApiError, KubeClient

_PODS = "/api/v1/pods"


class _Cluster:
    """Nodes, no reviews, and what was asked of Pods: whether each list was a current one. A Node
    has `pods`, which one budget protects.
    """

    def __init__(self, pods: Sequence[str] = (), allowed: int = 0) -> None:
        self.current_lists: list[bool] = []
        self._pods, self._allowed = pods, allowed

    async def create(self, _: str, __: Mapping[str, Any]) -> bytes:
        raise ApiError("POST", NOT_FOUND, "NotFound", "there are no reviews here")

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        if path == _PODS:
            assert query is not None
            self.current_lists.append("resourceVersion" not in query)
            return msgspec.json.encode({"items": [_pod(name) for name in self._pods]})
        if path.endswith("/poddisruptionbudgets"):
            return msgspec.json.encode({"items": [_budget(self._allowed)]})
        name = path.rpartition("/")[2]
        metadata = {"name": name, "uid": name, "labels": {MACHINE_LABEL: name}}
        return msgspec.json.encode({"metadata": metadata, "items": []})


def _pod(name: str) -> dict[str, Any]:
    owner = {"kind": "ReplicaSet", "name": "o", "uid": "o", "controller": True}
    metadata = {"name": name, "namespace": "n", "uid": name, "labels": {"app": "web"}}
    return {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": {"containers": []}}


def _budget(allowed: int) -> dict[str, Any]:
    return {
        "metadata": {"name": "b", "namespace": "n"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": allowed},
    }


class _AllFit:
    """A pod controller that knows room for every pod."""

    async def ask(self, spec: Mapping[str, Any]) -> dict[str, NodeDisruption]:
        return {name: NodeDisruption(name, 9, fits=True) for name in spec["nodes"]}


async def test_candidates_are_found_without_a_current_list_of_their_pods() -> None:
    """Shards ask again and again, and most that they ask about is never drained."""
    cluster = _Cluster()
    asked = Disruptions(cast(KubeClient, cluster), lambda: 0.0)
    report = await asked.report(DisruptionInquiry(machine_ids=["a", "b"], max_machines=2))
    assert [each.machine_id for each in report.machines] == ["a", "b"]
    assert cluster.current_lists == [False, False]


async def test_what_is_drained_is_judged_by_the_pods_that_are_there_now() -> None:
    """One that was bound a second ago counts."""
    cluster = _Cluster()
    asked = Disruptions(cast(KubeClient, cluster), lambda: 0.0)
    assert await asked.rejection_reason(["a", "b"], 0.0) == ""
    assert cluster.current_lists == [True, True]


async def test_nodes_drained_together_stay_within_a_budget_that_each_alone_meets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else all of their pods would be lost at once when the drains end."""
    monkeypatch.setattr(disruptions, "DisruptionReviews", lambda *_: _AllFit())
    monkeypatch.setattr(_AllFit, "run", None, raising=False)
    cluster = cast(KubeClient, _Cluster(["web"], allowed=2))
    found = disruptions.Disruptions(cluster, lambda: 0.0)
    asked = [found.rejection_reason([name], 9.0) for name in ("a", "b", "c", "d")]
    whys = await asyncio.gather(*asked)
    assert [bool(why) for why in whys].count(False) == 2
    refused = "3 pods match budget n/b, which allows 2"
    assert {why for why in whys if why} == {refused}
    first = next(name for name, why in zip("abcd", whys, strict=True) if not why)
    again = await found.rejection_reason([first], 9.0)
    assert again == "", "an order that is repeated is not refused for its own pods"
