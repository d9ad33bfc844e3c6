"""A Node that joins under the name of one being emptied is left alone, whenever it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import pytest

from bigfleet.api.v1alpha1.shard_pb2 import ReclaimInstruction
from bigfleet.api.wellknown import MACHINE_LABEL
from bigfleet.controllers.operator import reclaim
from bigfleet.controllers.operator.reclaim import Reclaimer
from bigfleet.kube.client import CONFLICT, ApiError, KubeClient

_PODS = "/api/v1/pods"


async def _unasked(_: Sequence[str], __: float) -> str:
    raise AssertionError("nobody said what it may cost")


class Rejoining:
    """A cluster with one Node and one Pod that does not leave; both are others' after so many
    requests.
    """

    def __init__(self, requests_before: int) -> None:
        self._left = requests_before
        self.uid, self.pod = "old-node", "old-pod"
        self.evicted: list[str] = []
        self.deleted: list[str] = []
        self.found_out = asyncio.Event()

    def _served(self) -> None:
        if self._left == 0:
            self.uid, self.pod = "new-node", "new-pod"
        self._left -= 1

    async def get(self, path: str, _: Mapping[str, str] | None = None) -> bytes:
        body = {"items": [self._pod()]} if path == _PODS else self._node()
        if path != _PODS and self.uid == "new-node":
            self.found_out.set()
        self._served()
        return msgspec.json.encode(body)

    async def patch(self, _: str, body: Mapping[str, Any]) -> bytes:
        if body["metadata"]["uid"] != self.uid:
            self.found_out.set()
            raise ApiError("PATCH", CONFLICT, "Conflict", "the UID in the precondition is another")
        node = self._node()
        self._served()
        return msgspec.json.encode(node)

    async def create(self, _: str, eviction: Mapping[str, Any]) -> bytes:
        self.evicted.append(eviction["deleteOptions"]["preconditions"]["uid"])
        self._served()
        return b"{}"

    async def delete(self, _: str, options: Mapping[str, Any]) -> bytes:
        self.deleted.append(options["preconditions"]["uid"])
        return b"{}"

    def _node(self) -> dict[str, Any]:
        labels = {MACHINE_LABEL: "m-1"}
        return {"metadata": {"name": "m-1", "uid": self.uid, "labels": labels}}

    def _pod(self) -> dict[str, Any]:
        return {"metadata": {"name": "p", "namespace": "n", "uid": self.pod}}


@pytest.mark.parametrize("requests_before", range(1, 8))
async def test_at_whatever_moment_it_joins_nothing_of_it_is_evicted_or_deleted(
    requests_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reclaim, "_MIN_POLL_INTERVAL_SECONDS", 0.001)
    cluster = Rejoining(requests_before)
    reclaims = Reclaimer(cast(KubeClient, cluster), lambda: 0.0, _unasked)
    await reclaims.start(
        ReclaimInstruction(instruction_id="i", nodes=["m-1"], grace_period_seconds=60)
    )
    async with asyncio.timeout(60):
        await cluster.found_out.wait()
    await reclaims.close()
    assert "new-pod" not in cluster.evicted
    assert "new-node" not in cluster.deleted


class Slow(Rejoining):
    """Answers nothing about its Pods before `listed` is set; its Node is another's from then on."""

    def __init__(self) -> None:
        super().__init__(-1)
        self.listed, self.emptied = asyncio.Event(), asyncio.Event()

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        if path == _PODS:
            await self.listed.wait()
            return msgspec.json.encode({"items": []})
        return await super().get(path, query)

    async def delete(self, path: str, options: Mapping[str, Any]) -> bytes:
        self.emptied.set()
        return await super().delete(path, options)


async def test_it_can_be_reclaimed_while_the_previous_one_is_still_drained() -> None:
    """The second reclaim must not count as a longer grace period of the first."""
    cluster = Slow()
    reclaims = Reclaimer(cast(KubeClient, cluster), lambda: 0.0, _unasked)
    again = ReclaimInstruction(instruction_id="i", nodes=["m-1"], grace_period_seconds=60)
    await reclaims.start(again)
    cluster.uid = "new-node"
    await reclaims.start(again)
    cluster.listed.set()
    async with asyncio.timeout(60):
        await cluster.emptied.wait()
    await reclaims.close()
    assert cluster.deleted == ["new-node"]
