"""Watches Pods and what they run on, and hands each change to whom it concerns."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.kube.client import KubeClient
from bigfleet.api.kube.watch import Changed, Listed, Watch
from bigfleet.controllers.pod_controller import requests
from bigfleet.controllers.pod_controller.additional import AdditionalRequests
from bigfleet.controllers.pod_controller.existing import ExistingRequests, Key, Spec
from bigfleet.controllers.pod_controller.nodes import RawNode, RawUpcomingNode
from bigfleet.controllers.pod_controller.occupancy import Occupancy, Place, Situation
from bigfleet.controllers.pod_controller.pods import (
    POD_UID_LABEL,
    ExistingRequest,
    Metadata,
    Pod,
)
from bigfleet.controllers.pod_controller.request_writer import RequestWriter
from bigfleet.controllers.pod_controller.reviews import Reviews
from bigfleet.controllers.pod_controller.shapes import Shape, Shapes
from bigfleet.controllers.pod_controller.unschedulable import HOLD_SECONDS
from bigfleet.controllers.pod_controller.volumes import Volumes
from bigfleet.controllers.podspec.unsupported import Unsupported
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_TOLD_LIMIT = 10_000

T = TypeVar("T")


class PodController:
    """Keeps the requests of all Pods right, but for those of `ignored_namespaces`.

    `now` is in seconds and never goes back; `wall` is the time in seconds since 1970. A Pod that
    cannot be scheduled for `hold_seconds`, though its need lacks no machine, asks for another one.
    """

    def __init__(
        self,
        client: KubeClient,
        write_concurrency: int,
        now: Callable[[], float],
        wall: Callable[[], float],
        ignored_namespaces: Sequence[str] = (),
        hold_seconds: float = HOLD_SECONDS,
    ) -> None:
        self._ignored = frozenset(ignored_namespaces)
        self._pods = Watch(client, "/api/v1/pods", Pod)
        path, ours = f"{GROUP_VERSION}/capacityrequests", {"labelSelector": POD_UID_LABEL}
        self._requests = Watch(client, path, ExistingRequest, ours)
        self._nodes = Watch(client, "/api/v1/nodes", RawNode)
        self._upcoming = Watch(client, f"{GROUP_VERSION}/upcomingnodes", RawUpcomingNode)
        self._existing, self._occupancy, self._shapes = ExistingRequests(), Occupancy(), Shapes()
        self._writer = RequestWriter(client, self._existing, write_concurrency, wall)
        self._additional = AdditionalRequests(
            client, self._writer, self._existing, self._occupancy, now, wall, hold_seconds
        )
        self._volumes = Volumes(client, self._see)
        self._reviews = Reviews(client, self._situation, wall)
        self._places: dict[Key, Place] = {}
        self._told: set[tuple[str, str]] = set()
        self._requests_listed, self._pods_listed = asyncio.Event(), asyncio.Event()
        self._nodes_listed = asyncio.Event()

    def not_ready(self) -> str:
        """Why not every Pod has been looked at yet; "" once they have."""
        if self._pods_listed.is_set():
            return self._volumes.not_ready()
        watch = self._pods if self._requests_listed.is_set() else self._requests
        return f"{watch.path} is not listed yet {watch.stats.last_error}".strip()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._follow_requests())
            loops.create_task(self._follow_pods())
            loops.create_task(self._follow_nodes())
            loops.create_task(self._follow_upcoming())
            loops.create_task(self._volumes.run())
            loops.create_task(self._writer.run())
            loops.create_task(self._additional.run())
            loops.create_task(self._reviews.run())

    async def _follow_requests(self) -> None:
        async with _changes(self._requests) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    self._writer.listed(change.items)
                    self._requests_listed.set()
                else:
                    self._writer.changed(change.item, deleted=change.deleted)

    async def _follow_pods(self) -> None:
        # Before the requests are known, everything would look as if it had to be created.
        await self._requests_listed.wait()
        async with _changes(self._pods) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    self._replace(change.items)
                    self._pods_listed.set()
                elif change.deleted:
                    self._volumes.forget(change.item.metadata.uid)
                    self._forget(_key_for(change.item.metadata))
                else:
                    self._see(change.item)

    async def _follow_nodes(self) -> None:
        async with _changes(self._nodes) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    self._occupancy.nodes = {n.metadata.name: n.read() for n in change.items}
                    self._nodes_listed.set()
                elif change.deleted:
                    self._occupancy.nodes.pop(change.item.metadata.name, None)
                else:
                    self._occupancy.nodes[change.item.metadata.name] = change.item.read()

    async def _follow_upcoming(self) -> None:
        async with _changes(self._upcoming) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    self._occupancy.coming.clear()
                    for each in change.items:
                        self._occupancy.expect(each.metadata.name, each.read())
                else:
                    machine = None if change.deleted else change.item.read()
                    self._occupancy.expect(change.item.metadata.name, machine)

    async def _situation(self) -> Situation:
        """The cluster as it is, once all of it is known."""
        await self._pods_listed.wait()
        await self._nodes_listed.wait()
        return self._occupancy.situation()

    def _replace(self, pods: Sequence[Pod]) -> None:
        """These are all Pods there are."""
        there = {_key_for(pod.metadata) for pod in pods}
        for gone in {*self._places, *self._writer.first_keys()} - there:
            self._forget(gone)
        self._volumes.forget_all()
        for pod in pods:
            self._see(pod)

    def _see(self, pod: Pod) -> None:
        key, shape = _key_for(pod.metadata), self._shapes.of(pod)
        self._place(key, pod, shape)
        if pod.metadata.namespace in self._ignored:
            return
        wants = requests.wants_request(pod)
        if not self._volumes.see(pod, wants):
            return  # we are called again with it once its claims are known
        spec = self._spec(key, pod) if wants else None
        known = pod.metadata.slim(owners=spec is not None and "coLocation" in spec.body)
        self._writer.want(key, known, spec)
        if spec is None or pod.spec.node_name or pod.metadata.deletion_timestamp:
            self._additional.settle(key, known, pod.spec.node_name)
        elif pod.refusal is not None:
            self._additional.see(key, pod, shape)

    def _place(self, key: Key, pod: Pod, shape: Shape) -> None:
        place = None
        if not pod.terminal:
            going = pod.metadata.deletion_timestamp is not None
            place = Place(shape, sys.intern(pod.spec.node_name), going)
        before = self._places.get(key)
        if place == before:
            return
        if before is not None:
            self._occupancy.remove(self._places.pop(key))
        if place is not None:
            self._occupancy.add(place)
            self._places[key] = place

    def _forget(self, key: Key) -> None:
        self._writer.forget(key)
        self._additional.forget(key)
        if (place := self._places.pop(key, None)) is not None:
            self._occupancy.remove(place)

    def _spec(self, key: Key, pod: Pod) -> Spec | None:
        try:
            if (volumes := self._volumes.choices_of(pod)) is None:
                return None  # kube-scheduler waits for its claims, too
            body = requests.request_for(pod, volumes)
        except Unsupported as error:
            self._tell(key, pod, error.field, f"gets no CapacityRequest: {error}", error.kind)
            return None
        for field in requests.not_carried(pod):
            self._tell(
                key, pod, field, f"has {field}, which its CapacityRequest does not carry", field
            )
        return self._writer.shared(body)

    def _tell(self, key: Key, pod: Pod, field: str, sentence: str, kind: str) -> None:
        """Count each Pod that is seen anew; say it once for its workload."""
        if key not in self._writer:
            metrics.pod_controller_unsupported_constraints.labels(kind).inc()
        if len(self._told) >= _TOLD_LIMIT:
            self._told.clear()
        if (pod.workload, field) not in self._told:
            self._told.add((pod.workload, field))
            _LOG.warning("%s: pod %s %s", pod.workload, pod.metadata.name, sentence)


def _changes(watch: Watch[T]) -> aclosing[AsyncGenerator[Listed[T] | Changed[T], None]]:
    return aclosing(watch.follow())


def _key_for(pod: Metadata) -> Key:
    return Key(pod.namespace, requests.request_name(pod.name, pod.uid))
