"""Requests additional machines for unschedulable Pods, and reports it by Events and conditions.

`unschedulable` decides which Pods request one, and when.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from bigfleet.controllers.pod_controller import requests
from bigfleet.controllers.pod_controller.events import PodEvents, PodName
from bigfleet.controllers.pod_controller.existing_requests import (
    ExistingRequests,
    InternedSpec,
    RequestKey,
    ShortReason,
    asking_pods,
)
from bigfleet.controllers.pod_controller.free_capacity import has_room_now
from bigfleet.controllers.pod_controller.nodes import Node
from bigfleet.controllers.pod_controller.nominations import Candidate, Nominations
from bigfleet.controllers.pod_controller.occupancy import AskingPod, Occupancy
from bigfleet.controllers.pod_controller.pods import Metadata, Pod
from bigfleet.controllers.pod_controller.request_writer import ConditionValue, RequestWriter
from bigfleet.controllers.pod_controller.shapes import Shape
from bigfleet.controllers.pod_controller.unschedulable import (
    MAX_ADDITIONAL_PER_POD,
    AdditionalRequest,
    Outlook,
    UnschedulablePods,
)
from bigfleet.kube.client import CONNECTION_ERRORS, ApiError, KubeClient
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_POLL_INTERVAL_SECONDS = 1.0
_SHORT_EVENT_INTERVAL_SECONDS = 5.0
_FOLLOW_INTERVAL_SECONDS = 30.0
_REQUESTED, _SHORT = "AdditionalCapacityRequested", "FailedProvisioning"
_LOGGED_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A waiting Pod; on its `nominated` Node, if any, room for it is being made, or kept."""

    metadata: Metadata
    shape: Shape
    workload: str
    nominated: str

    @property
    def name(self) -> PodName:
        return PodName(self.metadata.namespace, self.metadata.name, self.metadata.uid)


class AdditionalRequests:
    """Tracks the unschedulable Pods. `now` is in monotonic seconds; `wall` is Unix time."""

    def __init__(
        self,
        client: KubeClient,
        writer: RequestWriter,
        existing: ExistingRequests,
        occupancy: Occupancy,
        now: Callable[[], float],
        wall: Callable[[], float],
        delay_seconds: float,
    ) -> None:
        self._client, self._writer, self._existing = client, writer, existing
        self._occupancy, self._now = occupancy, now
        self._rules = UnschedulablePods[RequestKey](delay_seconds)
        self._waiting: dict[RequestKey, _Waiting] = {}
        self._events = PodEvents(client, wall)
        self._nominations = Nominations(client, occupancy, now, self._candidates)
        self._logged: set[str] = set()

    async def run(self, machines_known: Awaitable[None]) -> None:
        """Request machines until cancelled, once `machines_known`: before, no pod has room."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._events.run())
            loops.create_task(self._nominations.run())
            loops.create_task(self._poll(machines_known))
            loops.create_task(self._follow_domains())
            loops.create_task(self._report_short_pods())

    def observe(self, key: RequestKey, pod: Pod, shape: Shape) -> None:
        """Track an unschedulable Pod, whose first request is `key`."""
        spec = self._writer.spec(key)
        if spec is None:
            return
        nominated = pod.status.nominated_node_name
        self._waiting[key] = _Waiting(pod.metadata.slim(), shape, pod.workload, nominated)
        self._nominations.observe(key, nominated)
        group = pod.workload if pod.metadata.owner_references else pod.metadata.namespace
        created = pod.metadata.creation_timestamp
        asked = 0 if key in self._rules else self._existing.asked(key)
        self._rules.observe(key, (group, spec.digest), created, self._now(), asked)
        metrics.pod_controller_unschedulable.set(len(self._rules))

    def on_node(self, before: Node | None, node: Node) -> None:
        """Keep the room of a Node that joins for Pods that have requested a machine."""
        self._nominations.on_node(before, node)

    def on_bound(self, key: RequestKey, pod: Metadata, node: str = "") -> None:
        """Drop the additional requests of a Pod that is bound to `node`, or needs none any more."""
        if not self._drop(key, node) and not self._existing.any_additional:
            return  # the most common case
        asked = 0
        for number, each in enumerate(key.additional(), 1):
            if self._writer.spec(each) is not None or each in self._existing:
                self._writer.set_desired(each, pod, None)
                asked = number
        if asked and node:
            self._writer.set_condition(
                key, ConditionValue("False", "Scheduled", f"the pod is bound to node {node}")
            )

    def forget(self, key: RequestKey) -> None:
        """Forget a deleted Pod; its requests are garbage-collected."""
        self._drop(key)
        for each in key.additional():
            self._writer.forget(each)

    def _drop(self, key: RequestKey, node: str = "") -> bool:
        """Forget a waiting Pod, bound to `node` unless that is ""; return whether it was one."""
        self._nominations.forget(key)
        waiting = self._waiting.pop(key, None)
        if waiting is None:
            return False
        self._rules.forget(key, bound=bool(node), on_new_node=self._nominations.is_new(node))
        metrics.pod_controller_unschedulable.set(len(self._rules))
        for reason in (_REQUESTED, _SHORT):
            self._events.forget(waiting.name, reason)
        return True

    async def _poll(self, machines_known: Awaitable[None]) -> None:
        await machines_known
        while True:
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
            await self._nominations.withdraw_vain()
            for due in self._rules.due_requests(self._now(), self._outlook(), self._has_room()):
                try:
                    await self._request(due)
                except Exception as error:  # noqa: BLE001 - one pod must not block the others
                    self._rules.defer(due.pod, self._now())
                    self._failed(due.pod, error)

    async def _follow_domains(self) -> None:
        """Let the requests that are short name the domains that are open now: those that were open
        when they were made may have no machine.
        """
        while True:
            await asyncio.sleep(_FOLLOW_INTERVAL_SECONDS)
            for key in self._rules.asking():
                for each, spec in self._outdated(key):
                    self._writer.set_desired(each, self._waiting[key].metadata, spec)

    def _outdated(self, key: RequestKey) -> Iterator[tuple[RequestKey, InternedSpec]]:
        """The Pod's short requests whose domains have changed, as they should be."""
        waiting, first = self._waiting[key], self._writer.spec(key)
        for each in key.additional():
            spec = self._writer.spec(each)
            if first is None or spec is None or self._existing.short_reason(each, spec) is None:
                continue
            where = self._occupancy.where_else(
                waiting.shape, requests.excluded_nodes(first.body, spec.body)
            )
            alone = requests.is_alone(spec.body)
            renewed = self._writer.interned(
                requests.additional_request(first.body, where, alone=alone)
            )
            if renewed is not spec:
                yield each, renewed

    @staticmethod
    def _failed(key: RequestKey, error: Exception) -> None:
        if isinstance(error, (ApiError, *CONNECTION_ERRORS)):
            _LOG.warning("cannot read the pod of %s: %s", key.path, str(error) or repr(error))
            return
        metrics.internal_errors.inc()
        _LOG.error("unexpected error for pod of %s; this is a bug", key.path, exc_info=error)

    def _candidates(self) -> Iterator[Candidate]:
        """The Pods that have no Node nominated, those that have requested a machine first."""
        asking = dict.fromkeys(self._rules.asking())
        for key in [*asking, *(key for key in self._waiting if key not in asking)]:
            waiting = self._waiting[key]
            if not waiting.nominated:
                yield Candidate(key, waiting.name, waiting.shape, asked=key in asking)

    def _outlook(self) -> Callable[[RequestKey], Outlook]:
        by_shape = self._occupancy.outlooks()

        def outlook(key: RequestKey) -> Outlook:
            waiting = self._waiting[key]
            found = by_shape(waiting.shape)
            should_wait = found.should_wait or bool(waiting.nominated) or key not in self._existing
            if not should_wait:
                should_wait = any(r.explains(waiting.shape) for r in self._short_reasons(key))
            return found._replace(should_wait=should_wait)

        return outlook

    def _has_room(self) -> Callable[[RequestKey], bool]:
        nominated = [(w.shape, w.nominated) for w in self._waiting.values() if w.nominated]
        by_shape = has_room_now(self._occupancy, nominated)
        return lambda key: by_shape(self._waiting[key].shape)

    def _short_reasons(self, key: RequestKey) -> Iterator[ShortReason]:
        return self._existing.short_reasons(key, self._writer.spec)

    async def _request(self, due: AdditionalRequest[RequestKey]) -> None:
        key, waiting = due.pod, self._waiting.get(due.pod)
        if waiting is None:
            return  # bound or deleted meanwhile
        name = waiting.metadata
        path = f"/api/v1/namespaces/{name.namespace}/pods/{name.name}"
        pod = msgspec.json.decode(await self._client.get(path), type=Pod)
        no_help_reason = self._no_help_reason(pod, waiting)
        first = self._writer.spec(key)
        if key not in self._waiting or first is None:
            return
        if no_help_reason:
            self._rules.defer(key, self._now())
            self._log(waiting.workload, f"requests no additional machine: {no_help_reason}")
            return
        where = self._occupancy.where(waiting.shape, self._asking(key))
        body = requests.additional_request(first.body, where, alone=due.alone)
        spec = self._writer.interned(body)
        *_, additional = list(key.additional())[: due.number]
        self._writer.set_desired(additional, waiting.metadata, spec)
        self._report(key, waiting, due.number, where, pod.unschedulable_message or "")

    def _asking(self, but: RequestKey) -> Iterator[AskingPod]:
        """The Pods that have requested a machine, `but` this one."""
        keys = (key for key in self._rules.asking() if key != but)
        return asking_pods(keys, self._writer.spec, lambda key: self._waiting[key].shape)

    def _no_help_reason(self, pod: Pod, waiting: _Waiting) -> str:
        """Why no new machine would help the Pod; "" when one may."""
        if pod.unschedulable_message is None or pod.metadata.uid != waiting.metadata.uid:
            return "it was bound or deleted"
        if waiting.shape.node_filter.pins_nodes:
            return "its node affinity names the Nodes that it may run on"
        if self._occupancy.pinned_to_full_node(waiting.shape):
            return "its pod affinity pins it to the Node on which others run"
        return ""

    def _report(
        self,
        key: RequestKey,
        waiting: _Waiting,
        number: int,
        where: Sequence[Mapping[str, Any]],
        unschedulable_message: str,
    ) -> None:
        domains = "; ".join(
            f"{each['key']} {each['operator']} {', '.join(each['values'][:3])}"
            for each in where
            if each["key"] != HOSTNAME_LABEL
        )
        last = " It is the last one." if number == MAX_ADDITIONAL_PER_POD else ""
        message = (
            "unschedulable although enough machines for all requests exist; requested additional "
            f"machine {number} of at most {MAX_ADDITIONAL_PER_POD}"
            f"{f' ({domains})' if domains else ''}.{last}"
        )
        self._events.enqueue(waiting.name, "Normal", _REQUESTED, message)
        whole = f"{message} kube-scheduler: {unschedulable_message}"
        self._writer.set_condition(key, ConditionValue("True", "Unschedulable", whole))
        metrics.pod_controller_additional.labels(str(number)).inc()
        self._log(waiting.workload, f"has unschedulable pods: {whole}")

    def _log(self, workload: str, text: str) -> None:
        """Log once for each workload."""
        if len(self._logged) >= _LOGGED_LIMIT:
            self._logged.clear()
        if workload not in self._logged:
            self._logged.add(workload)
            _LOG.info("%s %s", workload, text)

    async def _report_short_pods(self) -> None:
        while True:
            await asyncio.sleep(_SHORT_EVENT_INTERVAL_SECONDS)
            for key, waiting in self._waiting.items():
                short_reason = next(self._short_reasons(key), None)
                if short_reason is None:
                    self._events.forget(waiting.name, _SHORT)
                else:
                    message = f"{short_reason.reason}: {short_reason.message}"
                    self._events.enqueue(waiting.name, "Warning", _SHORT, message)
