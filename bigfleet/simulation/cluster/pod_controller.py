"""A cluster's pod controller: production's rules without an API server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec

from bigfleet.controllers.pod_controller import nodes
from bigfleet.controllers.pod_controller.disruption import NodeDisruption, review
from bigfleet.controllers.pod_controller.existing_requests import (
    InternedSpec,
    RequestKey,
    ShortReason,
    asking_pods,
    digest_of,
)
from bigfleet.controllers.pod_controller.free_capacity import has_room_now
from bigfleet.controllers.pod_controller.occupancy import AskingPod, Occupancy, PodLocation
from bigfleet.controllers.pod_controller.requests import (
    additional_name,
    additional_request,
    excluded_nodes,
    is_alone,
)
from bigfleet.controllers.pod_controller.shapes import Shapes
from bigfleet.controllers.pod_controller.unschedulable import (
    AdditionalRequest,
    Outlook,
    UnschedulablePods,
)
from bigfleet.simulation.cluster.requests import Requests
from bigfleet.simulation.cluster.scheduler import SimulatedNode, SimulatedPod
from bigfleet.simulation.cluster.workload import NAMESPACE

# As in `controllers.pod_controller.additional_requests`.
_FOLLOW_INTERVAL_SECONDS = 30.0


class SimulatedPodController:
    """Writes `requests` for the pods of a cluster with these Nodes; `now` is in seconds."""

    def __init__(
        self,
        requests: Requests,
        cluster_nodes: Mapping[str, SimulatedNode],
        now: Callable[[], float],
    ) -> None:
        self.occupancy = Occupancy()
        self._requests, self._cluster_nodes, self._now = requests, cluster_nodes, now
        self._rules = UnschedulablePods[RequestKey]()
        self._shapes = Shapes()
        self._places: dict[str, PodLocation] = {}
        self._waiting: dict[RequestKey, SimulatedPod] = {}
        self._followed_seconds = 0.0

    def observe(self, pod: SimulatedPod) -> None:
        """A pod was created or bound."""
        self._place(pod.name, PodLocation(self._shapes.of(pod.workload.pod), pod.node))
        if pod.workload.kind == "DaemonSet":
            return
        key, workload = RequestKey(NAMESPACE, pod.name), pod.workload
        if key not in self._requests:
            self._requests.write(
                key, workload.request, workload.wire_request, pod.created, workload.gang_members
            )
        if pod.node:
            self._settle(key, bound=True)

    def forget(self, pod: SimulatedPod) -> None:
        """A pod was deleted."""
        key = RequestKey(NAMESPACE, pod.name)
        self._place(pod.name, None)
        self._settle(key)
        self._requests.remove(key)

    def see_unschedulable(self, pod: SimulatedPod) -> None:
        """A pod became Unschedulable."""
        key, workload = RequestKey(NAMESPACE, pod.name), pod.workload
        self._waiting[key] = pod
        number = pod.name.rpartition("-")[2].zfill(12)
        self._rules.observe(key, (workload.name, workload.request.digest), number, self._now())

    def request_additional(self) -> None:
        """Request the additional machines that are due."""
        if self._waiting:
            self._refresh_nodes()
            for request in self._rules.due_requests(self._now(), self._outlook(), self._has_room()):
                self._request(request)
            if self._now() - self._followed_seconds >= _FOLLOW_INTERVAL_SECONDS:
                self._followed_seconds = self._now()
                self._follow_domains()

    def is_short(self, pod: SimulatedPod) -> bool:
        """Whether a pending pod's request is reported as short of machines."""
        return any(self._short_reasons(RequestKey(NAMESPACE, pod.name)))

    def review(
        self, most: int, only: Collection[str] = (), preferred: Collection[str] = ()
    ) -> list[NodeDisruption]:
        """The response to a DisruptionReview."""
        self._refresh_nodes()
        return review(self.occupancy.snapshot(), most, only, preferred)

    def _place(self, name: str, place: PodLocation | None) -> None:
        before = self._places.pop(name, None)
        if before is not None:
            self.occupancy.remove(before)
        if place is not None:
            self._places[name] = place
            self.occupancy.add(place)

    def _settle(self, key: RequestKey, *, bound: bool = False) -> None:
        if self._waiting.pop(key, None) is not None:
            self._rules.forget(key, bound=bound)
            for each in key.additional():
                self._requests.remove(each)

    def _refresh_nodes(self) -> None:
        self.occupancy.nodes = {name: _seen(node) for name, node in self._cluster_nodes.items()}

    def _outlook(self) -> Callable[[RequestKey], Outlook]:
        by_shape = self.occupancy.outlooks()

        def outlook(key: RequestKey) -> Outlook:
            shape = self._places[key.name].shape
            found = by_shape(shape)
            if not found.should_wait:
                waits = any(reason.explains(shape) for reason in self._short_reasons(key))
                found = found._replace(should_wait=waits)
            return found

        return outlook

    def _has_room(self) -> Callable[[RequestKey], bool]:
        by_shape = has_room_now(self.occupancy)
        return lambda key: by_shape(self._places[key.name].shape)

    def _short_reasons(self, key: RequestKey) -> Iterator[ShortReason]:
        return self._requests.existing.short_reasons(key, self._requests.spec)

    def _request(self, request: AdditionalRequest[RequestKey]) -> None:
        pod, shape = self._waiting[request.pod], self._places[request.pod.name].shape
        if self.occupancy.pinned_to_full_node(shape):
            self._rules.defer(request.pod, self._now())
            return
        where = self.occupancy.where(shape, self._asking(request.pod))
        body = additional_request(pod.workload.request.body, where, alone=request.alone)
        self._write(RequestKey(NAMESPACE, additional_name(pod.name, request.number)), body)

    def _asking(self, but: RequestKey) -> Iterator[AskingPod]:
        """The pods that have requested a machine, `but` this one."""
        keys = (key for key in self._rules.asking() if key != but)
        return asking_pods(keys, self._requests.spec, lambda key: self._places[key.name].shape)

    def _follow_domains(self) -> None:
        """Let the requests that are short name the domains that are open now."""
        for key in self._rules.asking():
            first, shape = self._waiting[key].workload.request.body, self._places[key.name].shape
            for each in key.additional():
                spec = self._requests.spec(each)
                if spec is None or self._requests.existing.short_reason(each, spec) is None:
                    continue
                where = self.occupancy.where_else(shape, excluded_nodes(first, spec.body))
                body = additional_request(first, where, alone=is_alone(spec.body))
                if digest_of(body) != spec.digest:
                    self._write(each, body)

    def _write(self, key: RequestKey, body: Mapping[str, Any]) -> None:
        wire = msgspec.Raw(msgspec.json.encode(body))
        self._requests.write(key, InternedSpec(body, digest_of(body)), wire, self._now())


def _seen(node: SimulatedNode) -> nodes.Node:
    return nodes.Node(
        node.name,
        node.labels,
        node.allocatable,
        tuple(node.taints),
        ready=not node.dead,
        cordoned=node.cordoned,
        reclaiming=node.leaving,
        created=f"{node.created:020.3f}",
    )
