"""What an inquiry costs a busy API server: a current list may make it read every Pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from bigfleet.api.v1alpha1.shard_pb2 import DisruptionInquiry
from bigfleet.api.wellknown import MACHINE_LABEL
from bigfleet.controllers.operator.disruptions import Disruptions
from bigfleet.kube.client import NOT_FOUND, ApiError, KubeClient

_PODS = "/api/v1/pods"


class _Cluster:
    """Empty Nodes, no reviews, and what was asked of Pods: whether each list was a current one."""

    def __init__(self) -> None:
        self.current_lists: list[bool] = []

    async def create(self, _: str, __: Mapping[str, Any]) -> bytes:
        raise ApiError("POST", NOT_FOUND, "NotFound", "there are no reviews here")

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        if path == _PODS:
            assert query is not None
            self.current_lists.append("resourceVersion" not in query)
        name = path.rpartition("/")[2]
        metadata = {"name": name, "uid": name, "labels": {MACHINE_LABEL: name}}
        return msgspec.json.encode({"metadata": metadata, "items": []})


async def test_candidates_are_found_without_a_current_list_of_their_pods() -> None:
    """Shards ask again and again, and most that they ask about is never drained."""
    cluster = _Cluster()
    disruptions = Disruptions(cast(KubeClient, cluster), lambda: 0.0)
    report = await disruptions.report(DisruptionInquiry(machine_ids=["a", "b"], max_machines=2))
    assert [each.machine_id for each in report.machines] == ["a", "b"]
    assert cluster.current_lists == [False, False]


async def test_what_is_drained_is_judged_by_the_pods_that_are_there_now() -> None:
    """One that was bound a second ago counts."""
    cluster = _Cluster()
    disruptions = Disruptions(cast(KubeClient, cluster), lambda: 0.0)
    assert await disruptions.rejection_reason(["a", "b"], 0.0) == ""
    assert cluster.current_lists == [True, True]
