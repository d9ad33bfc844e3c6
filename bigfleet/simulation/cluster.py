"""A cluster that only pretends: nodes, workloads with their controllers, pods, a scheduler."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable

import msgspec

from bigfleet.api.install import GANG_MEMBERS
from bigfleet.controllers.operator.ledger import CapacityRequest, Key, Ledger, Metadata
from bigfleet.controllers.pod_controller.requests import additional_name, additional_request
from bigfleet.controllers.pod_controller.unschedulable import (
    Ask,
    Outlook,
    Unschedulable,
)
from bigfleet.model.machine import Machine
from bigfleet.model.need import HOSTNAME_LABEL
from bigfleet.services.shard.kinds import kind_of
from bigfleet.simulation.scheduler import Node, Pod, displaceable, schedule
from bigfleet.simulation.workload import NAMESPACE, Workload
from bigfleet.tasks import until_one_ends

SCHEDULING_SECONDS = 0.2
LOOK_FOR_UNSCHEDULABLE_SECONDS = 1.0


class Cluster:
    """State and its changes; each change of demand is in `ledger` at once.

    `now` is in seconds. Its scheduler `looks_ahead` where it begins a gang. `request_bound_pods`
    False leaves out the requests of pods that are bound, `request_additional` False asks for no
    further machine for those that cannot be scheduled: wrong ways, there to show why.
    """

    def __init__(
        self,
        name: str,
        now: Callable[[], float],
        *,
        looks_ahead: bool = True,
        request_bound_pods: bool = True,
        request_additional: bool = True,
    ) -> None:
        self.name = name
        self._now, self._unschedulable = now, Unschedulable[str]()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.ledger = Ledger()
        self.evicted = self.preempted = 0
        self._looks_ahead = looks_ahead
        self._request_bound_pods = request_bound_pods
        self._request_additional = request_additional
        self._workloads: dict[str, Workload] = {}
        self._numbers = itertools.count(1)
        self._changed = asyncio.Event()
        self._node_left: dict[str, asyncio.Event] = {}
        self.ledger.replace([])

    async def run(self) -> None:
        """Schedule after every change, until cancelled."""
        await until_one_ends(self._schedule_on(), self._look_for_unschedulable())

    async def _schedule_on(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(SCHEDULING_SECONDS)
            self._changed.clear()
            self.schedule()

    async def _look_for_unschedulable(self) -> None:
        while self._request_additional:
            await asyncio.sleep(LOOK_FOR_UNSCHEDULABLE_SECONDS)
            for ask in self._unschedulable.look(self._now(), self._outlook):
                self._ask(ask)
        await asyncio.Event().wait()

    def apply(self, workload: Workload) -> None:
        """Make `workload` what it now is; too many pods go, unbound ones first, then the newest."""
        self._workloads[workload.name] = workload
        mine = [p for p in self.pods.values() if p.workload.name == workload.name]
        changed = [p for p in mine if p.workload.request != workload.request]
        for pod in changed:
            self._remove(pod)
        kept = [p for p in mine if p not in changed]
        for pod in sorted(kept, key=lambda p: p.node == "")[workload.replicas :]:
            self._remove(pod)
        self._fill(workload)

    def withdraw(self, name: str) -> None:
        """The workload and its pods go."""
        self.apply(self._workloads[name].of(0))
        del self._workloads[name]

    @property
    def workloads(self) -> list[Workload]:
        """What tenants want now."""
        return list(self._workloads.values())

    def unbound(self) -> list[Pod]:
        """Pods that wait for a place, oldest first."""
        return [pod for pod in self.pods.values() if not pod.node]

    def releasable(self, most: int) -> list[str]:
        """Nodes that could go, one after the other, those with fewest pods first: their pods find
        room on the others.
        """
        by_number = sorted(
            (node for node in self.nodes.values() if node.usable),
            key=lambda node: (len(self.pods_on(node.name)), node.name),
        )
        return displaceable(by_number, [p for p in self.pods.values() if p.node], most)

    def pods_on(self, node: str) -> list[Pod]:
        """The pods bound to a node."""
        return [pod for pod in self.pods.values() if pod.node == node]

    def schedule(self) -> None:
        """Bind what can be bound."""
        bound = [pod for pod in self.pods.values() if pod.node]
        ahead = self._looks_ahead
        for pod in schedule(self.unbound(), self.nodes, bound, self._preempt, looks_ahead=ahead):
            self._request(pod)
            self._withdraw_additional(pod.name)
        for pod in self.unbound():
            number = pod.name.rpartition("-")[2].zfill(12)
            self._unschedulable.see(pod.name, pod.workload.name, number, self._now())

    def _preempt(self, pod: Pod) -> None:
        """Kube-scheduler evicts a pod for one of higher priority."""
        self.preempted += 1
        self._lose(pod)

    def evict(self, pod: Pod) -> bool:
        """End a pod by request; False when its workload's budget forbids it for now."""
        budget = pod.workload.max_unavailable
        if budget is not None and self._unbound_of(pod.workload) >= budget:
            return False
        self.evicted += 1
        self._lose(pod)
        return True

    def join(self, machine: Machine) -> None:
        """The machine's Node is there and ready; again after a restart changes nothing.

        A Node that the machine left behind is taken over as it is, cordoned or not.
        """
        if machine.id in self.nodes:
            self.nodes[machine.id].dead = False
        else:
            labels = {**kind_of(machine).labels_of(machine.id), HOSTNAME_LABEL: machine.id}
            has = machine.allocatable
            self.nodes[machine.id] = Node(machine.id, labels, has, dict(has), machine.taints)
        self._changed.set()

    def die(self, node: str) -> None:
        """The machine is no more: what ran on it is lost, its Node stays and says so."""
        if node in self.nodes:
            self.nodes[node].dead = True
            for pod in self.pods_on(node):
                self._lose(pod)

    def leave(self, node: str) -> None:
        """The Node goes, and with it whatever still runs there."""
        for pod in self.pods_on(node):
            self._lose(pod)
        if self.nodes.pop(node, None) is not None:
            self._node_left.pop(node, asyncio.Event()).set()
            self._changed.set()

    async def left(self, node: str) -> None:
        """Wait until there is no such Node."""
        if node in self.nodes:
            await self._node_left.setdefault(node, asyncio.Event()).wait()

    def _unbound_of(self, workload: Workload) -> int:
        return sum(1 for p in self.unbound() if p.workload.name == workload.name)

    def _lose(self, pod: Pod) -> None:
        self._remove(pod)
        workload = self._workloads.get(pod.workload.name)
        if workload is None:
            return
        if not workload.managed:
            self._workloads[workload.name] = workload.of(workload.replicas - 1)
        self._fill(self._workloads[workload.name])

    def _fill(self, workload: Workload) -> None:
        have = Counter(pod.workload.name for pod in self.pods.values())[workload.name]
        for _ in range(workload.replicas - have):
            pod = Pod(f"{workload.name}-{next(self._numbers)}", workload)
            self.pods[pod.name] = pod
            self._request(pod)
        self._changed.set()

    def _remove(self, pod: Pod) -> None:
        del self.pods[pod.name]
        if pod.node:
            self.nodes[pod.node].use(pod, -1)
        self.ledger.remove(Key(NAMESPACE, pod.name))
        self._withdraw_additional(pod.name)
        self._changed.set()

    def _withdraw_additional(self, pod: str) -> None:
        for number in range(1, self._unschedulable.forget(pod) + 1):
            self.ledger.remove(Key(NAMESPACE, additional_name(pod, number)))

    def _outlook(self, pod: str) -> Outlook:
        """Nothing is known here of short needs and of machines on their way: so only those pods ask
        which companions hold where they are.
        """
        return Outlook(patient=not self._home(self.pods[pod].workload))

    def _home(self, workload: Workload) -> str | None:
        """The domain where the workload's gang runs, "" where none of it does; None for no gang."""
        if not workload.same_key:
            return None
        mine = (p.node for p in self.pods.values() if p.workload.name == workload.name and p.node)
        beside = next(mine, None)
        return self.nodes[beside].labels[workload.same_key] if beside else ""

    def _ask(self, ask: Ask[str]) -> None:
        workload = self.pods[ask.pod].workload
        home = self._home(workload)
        here = {"key": workload.same_key, "operator": "In", "values": [home]}
        spec = additional_request(msgspec.json.decode(workload.request), [here] if home else [])
        body, name = msgspec.Raw(msgspec.json.encode(spec)), additional_name(ask.pod, ask.number)
        self.ledger.put(CapacityRequest(Metadata(name, NAMESPACE), body))

    def _request(self, pod: Pod) -> None:
        if pod.node and not self._request_bound_pods:
            self.ledger.remove(Key(NAMESPACE, pod.name))
            return
        members = pod.workload.gang_members
        said = {GANG_MEMBERS: str(members)} if members else None
        metadata = Metadata(pod.name, NAMESPACE, annotations=said)
        self.ledger.put(CapacityRequest(metadata, msgspec.Raw(pod.workload.request)))
