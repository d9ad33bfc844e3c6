"""A cluster's pod controller: production's own knowledge and rules, without an API server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from bigfleet.controllers.pod_controller import nodes
from bigfleet.controllers.pod_controller.disruption import Verdict, review
from bigfleet.controllers.pod_controller.existing import Key, Spec, digest_of
from bigfleet.controllers.pod_controller.occupancy import Occupancy, Place
from bigfleet.controllers.pod_controller.requests import additional_name, additional_request
from bigfleet.controllers.pod_controller.shapes import Shape, Shapes
from bigfleet.controllers.pod_controller.unschedulable import Ask, Outlook, Unschedulable
from bigfleet.simulation.cluster.requests import Requests
from bigfleet.simulation.cluster.scheduler import SimulatedNode, SimulatedPod
from bigfleet.simulation.cluster.workload import NAMESPACE


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
        self._rules = Unschedulable[Key]()
        self._shapes = Shapes()
        self._places: dict[str, Place] = {}
        self._waiting: dict[Key, SimulatedPod] = {}

    def see(self, pod: SimulatedPod) -> None:
        """A pod is there, or was bound."""
        self._place(pod.name, Place(self._shapes.of(pod.workload.pod), pod.node))
        if pod.workload.kind == "DaemonSet":
            return
        key, workload = Key(NAMESPACE, pod.name), pod.workload
        if key not in self._requests:
            self._requests.write(
                key, workload.request, workload.wire_request, pod.created, workload.gang_members
            )
        if pod.node:
            self._settle(key, bound=True)

    def forget(self, pod: SimulatedPod) -> None:
        """A pod is gone."""
        key = Key(NAMESPACE, pod.name)
        self._place(pod.name, None)
        self._settle(key)
        self._requests.remove(key)

    def see_unschedulable(self, pod: SimulatedPod) -> None:
        """kube-scheduler has found no place for a pod."""
        key, workload = Key(NAMESPACE, pod.name), pod.workload
        self._waiting[key] = pod
        number = pod.name.rpartition("-")[2].zfill(12)
        self._rules.see(key, (workload.name, workload.request.digest), number, self._now())

    def request_additional(self) -> None:
        """Ask for additional machines if it is time."""
        if self._waiting:
            self._refresh_nodes()
            for ask in self._rules.look(self._now(), self._outlook()):
                self._ask(ask)

    def is_short(self, pod: SimulatedPod) -> bool:
        """Whether machines are known to be missing for a waiting pod."""
        return self._is_short(Key(NAMESPACE, pod.name))

    def review(
        self, most: int, only: Collection[str] = (), preferred: Collection[str] = ()
    ) -> list[Verdict]:
        """The answer to a DisruptionReview."""
        self._refresh_nodes()
        return review(self.occupancy.situation(), most, only, preferred)

    def _place(self, name: str, place: Place | None) -> None:
        before = self._places.pop(name, None)
        if before is not None:
            self.occupancy.remove(before)
        if place is not None:
            self._places[name] = place
            self.occupancy.add(place)

    def _settle(self, key: Key, *, bound: bool = False) -> None:
        if self._waiting.pop(key, None) is not None:
            self._rules.forget(key, bound=bound)
            for each in key.additional():
                self._requests.remove(each)

    def _refresh_nodes(self) -> None:
        self.occupancy.nodes = {name: _seen(node) for name, node in self._cluster_nodes.items()}

    def _outlook(self) -> Callable[[Key], Outlook]:
        left = self.occupancy.left_waiting() if len(self._rules) else {}
        unplaced: dict[Shape, bool] = {}

        def outlook(key: Key) -> Outlook:
            shape = self._places[key.name].shape
            if shape not in unplaced:
                unplaced[shape] = self.occupancy.is_unplaced_gang(shape)
            return Outlook(not left.get(shape) or self._is_short(key), unplaced[shape])

        return outlook

    def _is_short(self, key: Key) -> bool:
        for each in (key, *key.additional()):
            spec = self._requests.spec(each)
            if spec is not None and self._requests.existing.shortage(each, spec) is not None:
                return True
        return False

    def _ask(self, ask: Ask[Key]) -> None:
        pod, shape = self._waiting[ask.pod], self._places[ask.pod.name].shape
        if self.occupancy.held_to_a_full_node(shape):
            self._rules.put_aside(ask.pod, self._now())
            return
        body = additional_request(pod.workload.request.body, self.occupancy.where(shape))
        key = Key(NAMESPACE, additional_name(pod.name, ask.number))
        wire = msgspec.Raw(msgspec.json.encode(body))
        self._requests.write(key, Spec(body, digest_of(body)), wire, self._now())


def _seen(node: SimulatedNode) -> nodes.Node:
    return nodes.Node(
        node.name,
        node.labels,
        node.allocatable,
        tuple(node.taints),
        ready=not node.dead,
        cordoned=node.cordoned,
        leaving=node.leaving,
        created=f"{node.created:020.3f}",
    )
