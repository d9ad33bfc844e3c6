"""Watches Pods, Nodes and requests, and dispatches each change to the component that handles it."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.wellknown import POD_UID_LABEL
from bigfleet.controllers.pod_controller import requests
from bigfleet.controllers.pod_controller.additional_requests import AdditionalRequests
from bigfleet.controllers.pod_controller.existing_requests import (
    ExistingRequests,
    InternedSpec,
    RequestKey,
)
from bigfleet.controllers.pod_controller.nodes import RawNode, RawUpcomingNode
from bigfleet.controllers.pod_controller.occupancy import ClusterSnapshot, Occupancy, PodLocation
from bigfleet.controllers.pod_controller.pods import (
    ExistingRequest,
    Metadata,
    Pod,
)
from bigfleet.controllers.pod_controller.request_writer import RequestWriter
from bigfleet.controllers.pod_controller.reviews import Reviews
from bigfleet.controllers.pod_controller.shapes import Shape, Shapes
from bigfleet.controllers.pod_controller.unschedulable import UNSCHEDULABLE_DELAY_SECONDS
from bigfleet.controllers.pod_controller.volumes import Volumes
from bigfleet.controllers.podspec.unsupported import Unsupported
from bigfleet.kube.client import KubeClient
from bigfleet.kube.watch import Changed, Listed, Watch
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_REPORTED_LIMIT = 10_000

T = TypeVar("T")


class PodController:
    """Reconciles the requests of all Pods, except those of `ignored_namespaces`.

    `now` is in monotonic seconds; `wall` is Unix time. A Pod that is unschedulable for
    `delay_seconds`, though its need is not short, requests an additional machine.
    """

    def __init__(
        self,
        client: KubeClient,
        write_concurrency: int,
        now: Callable[[], float],
        wall: Callable[[], float],
        ignored_namespaces: Sequence[str] = (),
        delay_seconds: float = UNSCHEDULABLE_DELAY_SECONDS,
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
            client, self._writer, self._existing, self._occupancy, now, wall, delay_seconds
        )
        self._volumes = Volumes(client, self._observe)
        self._reviews = Reviews(client, self._snapshot, wall)
        self._locations: dict[RequestKey, PodLocation] = {}
        self._reported: set[tuple[str, str]] = set()
        self._requests_listed, self._pods_listed = asyncio.Event(), asyncio.Event()
        self._nodes_listed, self._upcoming_listed = asyncio.Event(), asyncio.Event()

    def not_ready(self) -> str:
        """Why not all Pods have been reconciled yet; "" once they have."""
        if self._pods_listed.is_set():
            return self._volumes.not_ready()
        watch = self._pods if self._requests_listed.is_set() else self._requests
        return f"{watch.path} is not listed yet {watch.stats.last_error}".strip()

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._follow_requests())
            loops.create_task(self._follow_pods())
            loops.create_task(self._follow_nodes())
            loops.create_task(self._follow_upcoming())
            loops.create_task(self._volumes.run())
            loops.create_task(self._writer.run())
            loops.create_task(self._additional.run(self._machines_known()))
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
        # Requests first: else all of them would seem to be missing.
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
                    self._observe(change.item)

    async def _follow_nodes(self) -> None:
        async with _changes(self._nodes) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    self._occupancy.nodes = {n.metadata.name: n.read() for n in change.items}
                    self._nodes_listed.set()
                elif change.deleted:
                    self._occupancy.nodes.pop(change.item.metadata.name, None)
                else:
                    node = change.item.read()
                    before = self._occupancy.nodes.get(node.name)
                    self._occupancy.nodes[node.name] = node
                    self._additional.on_node(before, node)

    async def _follow_upcoming(self) -> None:
        async with _changes(self._upcoming) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    self._occupancy.upcoming.clear()
                    for each in change.items:
                        self._occupancy.set_upcoming(each.metadata.name, each.read())
                    self._upcoming_listed.set()
                else:
                    machine = None if change.deleted else change.item.read()
                    self._occupancy.set_upcoming(change.item.metadata.name, machine)

    async def _machines_known(self) -> None:
        await self._nodes_listed.wait()
        await self._upcoming_listed.wait()

    async def _snapshot(self) -> ClusterSnapshot:
        """A snapshot of the cluster, once Pods and Nodes are listed."""
        await self._pods_listed.wait()
        await self._nodes_listed.wait()
        return self._occupancy.snapshot()

    def _replace(self, pods: Sequence[Pod]) -> None:
        """Replace all Pods."""
        listed = {_key_for(pod.metadata) for pod in pods}
        for gone in {*self._locations, *self._writer.first_keys()} - listed:
            self._forget(gone)
        self._volumes.forget_all()
        for pod in pods:
            self._observe(pod)

    def _observe(self, pod: Pod) -> None:
        key, shape = _key_for(pod.metadata), self._shapes.of(pod)
        self._place(key, pod, shape)
        if pod.metadata.namespace in self._ignored:
            return
        wants = requests.needs_request(pod) and not self._is_leaving(pod)
        if not self._volumes.observe(pod, wants):
            return  # called again once its claims are known
        spec = self._spec(key, pod) if wants else None
        known = pod.metadata.slim(owners=spec is not None and "coLocation" in spec.body)
        self._writer.set_desired(key, known, spec)
        if spec is None or pod.spec.node_name or pod.metadata.deletion_timestamp:
            self._additional.on_bound(key, known, pod.spec.node_name)
        elif pod.unschedulable_message is not None:
            self._additional.observe(key, pod, shape)

    def _is_leaving(self, pod: Pod) -> bool:
        """Whether it was evicted from a machine that is being reclaimed, and replaced: both would
        count, without the machine, and another one would be bought.
        """
        node = self._occupancy.nodes.get(pod.spec.node_name)
        return node is not None and node.reclaiming and requests.is_replaced_at_once(pod)

    def _place(self, key: RequestKey, pod: Pod, shape: Shape) -> None:
        place = None
        if not pod.terminal:
            terminating = pod.metadata.deletion_timestamp is not None
            place = PodLocation(shape, sys.intern(pod.spec.node_name), terminating)
        before = self._locations.get(key)
        if place == before:
            return
        if before is not None:
            self._occupancy.remove(self._locations.pop(key))
        if place is not None:
            self._occupancy.add(place)
            self._locations[key] = place

    def _forget(self, key: RequestKey) -> None:
        self._writer.forget(key)
        self._additional.forget(key)
        if (place := self._locations.pop(key, None)) is not None:
            self._occupancy.remove(place)

    def _spec(self, key: RequestKey, pod: Pod) -> InternedSpec | None:
        try:
            if (volumes := self._volumes.choices_of(pod)) is None:
                return None  # kube-scheduler waits for its claims, too
            body = requests.request_for(pod, volumes)
        except Unsupported as error:
            self._report(
                key, pod, error.field, f"gets no CapacityRequest: {error}", error.metric_label
            )
            return None
        for field in requests.unsupported_fields(pod):
            self._report(
                key, pod, field, f"has {field}, which its CapacityRequest does not express", field
            )
        return self._writer.interned(body)

    def _report(self, key: RequestKey, pod: Pod, field: str, text: str, metric_label: str) -> None:
        """Count each new Pod; log once for each workload."""
        if key not in self._writer:
            metrics.pod_controller_unsupported_constraints.labels(metric_label).inc()
        if len(self._reported) >= _REPORTED_LIMIT:
            self._reported.clear()
        if (pod.workload, field) not in self._reported:
            self._reported.add((pod.workload, field))
            _LOG.warning("%s: pod %s %s", pod.workload, pod.metadata.name, text)


def _changes(watch: Watch[T]) -> aclosing[AsyncGenerator[Listed[T] | Changed[T], None]]:
    return aclosing(watch.follow())


def _key_for(pod: Metadata) -> RequestKey:
    return RequestKey(pod.namespace, requests.request_name(pod.name, pod.uid))
