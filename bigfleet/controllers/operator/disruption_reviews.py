"""Asks the pod controller, which watches Pods, what Nodes can be drained."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

import msgspec

from bigfleet.api.install import GROUP_VERSION
from bigfleet.kube.client import CONNECTION_ERRORS, FORBIDDEN, NOT_FOUND, ApiError, KubeClient
from bigfleet.kube.types import ObjectList, ObjectMeta
from bigfleet.kube.watch import Listed, Watch

_LOG = logging.getLogger(__name__)
_REVIEWS = f"{GROUP_VERSION}/disruptionreviews"
_REVIEW_SECONDS = 5.0
_STALE_SECONDS, _SWEEP_SECONDS = 300.0, 60.0
FIT_UNKNOWN = "whether its pods fit elsewhere is unknown"
_FIT_STALE = "more pods run there than when the pod controller checked whether they fit elsewhere"


class NodeDisruption(msgspec.Struct):
    """Whether a Node can be drained (`fits`), or why not; `pods` ran there at that time."""

    name: str
    pods: int
    fits: bool
    message: str = ""

    def rejection_reason(self, pods: int) -> str:
        """Why a Node that now runs so many pods must not be drained; "" when it may be."""
        if not self.fits:
            return self.message
        return _FIT_STALE if pods > self.pods else ""


# For Nodes that were not reviewed.
UNKNOWN = NodeDisruption("", 0, fits=False, message=FIT_UNKNOWN)


class _Status(msgspec.Struct, rename="camel"):
    observed_at: str = ""
    nodes: list[NodeDisruption] = []


class _Review(msgspec.Struct):
    metadata: ObjectMeta
    status: _Status = msgspec.field(default_factory=_Status)


class DisruptionReviews:
    """DisruptionReviews of this operator. `now` is Unix time."""

    def __init__(self, client: KubeClient, now: Callable[[], float]) -> None:
        self._client, self._now = client, now

    async def run(self) -> None:
        """Delete stale reviews until cancelled."""
        while True:
            with suppress(ApiError, *CONNECTION_ERRORS):
                await self._sweep()
            await asyncio.sleep(_SWEEP_SECONDS)

    async def ask(self, spec: Mapping[str, Any]) -> dict[str, NodeDisruption] | None:
        """The verdict on each Node, in order; None without an answer. Without `nodes` the review
        covers all. ApiError or a connection error.
        """
        body = {
            "apiVersion": "bigfleet.lucy.sh/v1alpha1",
            "kind": "DisruptionReview",
            "metadata": {"generateName": "review-"},
            "spec": spec,
        }
        try:
            made = msgspec.json.decode(await self._client.create(_REVIEWS, body), type=_Review)
        except ApiError as error:
            if error.status not in (NOT_FOUND, FORBIDDEN):
                raise
            _LOG.warning("cannot create a DisruptionReview: %s", error)
            return None
        name = made.metadata.name
        try:
            async with asyncio.timeout(_REVIEW_SECONDS):
                status = await self._answer(name)
        except TimeoutError:
            _LOG.warning("no pod controller answered %s within %g s", name, _REVIEW_SECONDS)
            return None
        finally:
            await self._remove(name)
        return {each.name: each for each in status.nodes}

    async def _answer(self, name: str) -> _Status:
        selector = {"fieldSelector": f"metadata.name={name}"}
        async with aclosing(Watch(self._client, _REVIEWS, _Review, selector).follow()) as changes:
            async for change in changes:
                for each in change.items if isinstance(change, Listed) else [change.item]:
                    if each.status.observed_at:
                        return each.status
        raise AssertionError("a watch has no end")

    async def _remove(self, name: str) -> None:
        try:
            await self._client.delete(f"{_REVIEWS}/{name}")
        except (ApiError, *CONNECTION_ERRORS) as error:
            _LOG.info("cannot delete DisruptionReview %s yet: %s", name, error)

    async def _sweep(self) -> None:
        found = msgspec.json.decode(await self._client.get(_REVIEWS), type=ObjectList[_Review])
        for review in found.items:
            if self._now() - review.metadata.created > _STALE_SECONDS:
                await self._remove(review.metadata.name)
