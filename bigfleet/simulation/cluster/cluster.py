"""A simulated cluster: nodes, workloads with their controllers, pods, a scheduler."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence

from bigfleet.controllers.operator.surplus_nodes import NamedMachines
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.machine import Machine
from bigfleet.services.shard.records.machine_class import class_of
from bigfleet.simulation.cluster.pod_controller import SimulatedPodController
from bigfleet.simulation.cluster.requests import Requests
from bigfleet.simulation.cluster.scheduler import SimulatedNode, SimulatedPod, runs_on, schedule
from bigfleet.simulation.cluster.workload import Workload
from bigfleet.tasks import run_until_first_completes

SCHEDULING_SECONDS = 0.2
LOOK_FOR_UNSCHEDULABLE_SECONDS = 1.0


class SimulatedCluster:
    """A cluster's state; each change of demand is in `requests` at once.

    `now` returns Unix time. The scheduler `looks_ahead` when it starts a gang. Each Node has a pod
    of each of `daemons`. `request_additional` False disables requests for additional machines, to
    show why they are needed. `evicted` counts pods evicted through the API, `preempted` those
    preempted by kube-scheduler, and `died` machines that died here.
    `grew_seconds` and `shrank_seconds` are when anybody last wanted more, and less.
    `on_node_deleted` is called with each Node that was deleted, `on_bound` with how many pods were
    bound at once and how many are pending then. `withdrawn` counts Nodes that
    administrators have deleted or cordoned. A cluster that is `gone` has no API server any more.
    """

    def __init__(
        self,
        name: str,
        now: Callable[[], float],
        *,
        looks_ahead: bool = True,
        daemons: Sequence[Workload] = (),
        request_additional: bool = True,
    ) -> None:
        self.name, self.daemons = name, daemons
        self.nodes: dict[str, SimulatedNode] = {}
        self.pods: dict[str, SimulatedPod] = {}
        self.requests = Requests()
        self.controller = SimulatedPodController(self.requests, self.nodes, now)
        self.evicted = self.preempted = self.died = self.withdrawn = 0
        self.on_node_deleted: Callable[[SimulatedNode], None] = lambda _: None
        self.on_bound: Callable[[int, int], None] = lambda *_: None
        self.surplus = NamedMachines(now)
        self.gone = False
        self.grew_seconds = self.shrank_seconds = 0.0
        self._now = now
        self._looks_ahead = looks_ahead
        self._request_additional = request_additional
        self._workloads: dict[str, Workload] = {}
        self._pods_by_workload: dict[str, dict[str, SimulatedPod]] = defaultdict(dict)
        self._daemon_pods: dict[str, list[SimulatedPod]] = {}
        self._numbers = itertools.count(1)
        self._changed = asyncio.Event()
        self._node_left: dict[str, asyncio.Event] = {}

    async def run(self) -> None:
        """Schedule pods until cancelled."""
        await run_until_first_completes(self._schedule_on(), self._look_for_unschedulable())

    async def _schedule_on(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(SCHEDULING_SECONDS)
            self._changed.clear()
            self.schedule()

    async def _look_for_unschedulable(self) -> None:
        while self._request_additional:
            await asyncio.sleep(LOOK_FOR_UNSCHEDULABLE_SECONDS)
            self.controller.request_additional()
        await asyncio.Event().wait()

    def apply(self, workload: Workload) -> None:
        """Apply `workload`; surplus pods are deleted, unbound ones first, then the newest."""
        self._workloads[workload.name] = workload
        mine = self._pods_of(workload.name)
        changed = [p for p in mine if p.workload.request.digest != workload.request.digest]
        kept = [p for p in mine if p not in changed]
        too_many = sorted(kept, key=lambda p: p.node == "")[workload.replicas :]
        for pod in (*changed, *too_many):
            self.shrank_seconds = self._now()
            self._remove(pod)
        if workload.replicas > len(kept):
            self.grew_seconds = self._now()
        self._fill(workload)

    def withdraw(self, name: str) -> None:
        """Delete the workload with its pods."""
        self.apply(self._workloads[name].of(0))
        del self._workloads[name]

    def delete(self, name: str, number: int) -> None:
        """Delete the oldest pods of a workload; its controller replaces them."""
        for pod in self._pods_of(name)[:number]:
            self._delete_and_replace(pod)

    def complete(self, name: str, number: int) -> None:
        """Complete the oldest running pods of a Job."""
        running = [pod for pod in self._pods_of(name) if pod.node][:number]
        if running:
            workload = self._workloads[name]
            self._workloads[name] = workload.of(workload.replicas - len(running))
            self.shrank_seconds = self._now()
            for pod in running:
                self._remove(pod)

    @property
    def workloads(self) -> list[Workload]:
        """The current workloads."""
        return list(self._workloads.values())

    def unbound(self) -> list[SimulatedPod]:
        """Pending pods, oldest first."""
        return [pod for pod in self.pods.values() if not pod.node]

    def pods_on(self, node: str) -> list[SimulatedPod]:
        """The pods bound to a node, without those of DaemonSets."""
        return [pod for pod in self.pods.values() if pod.node == node]

    def disruptions_allowed(self, workload: Workload) -> int | None:
        """The evictions that the workload's budget allows now; None without a budget."""
        if workload.max_unavailable is None:
            return None
        unbound = sum(1 for pod in self._pods_of(workload.name) if not pod.node)
        return max(0, workload.max_unavailable - unbound)

    def schedule(self) -> None:
        """Bind the pods that fit."""
        bound = [pod for pod in self.pods.values() if pod.node]
        surplus = self.surplus.current()
        for node in self.nodes.values():
            node.surplus = node.name in surplus
        ahead = self._looks_ahead
        found = 0
        for pod in schedule(self.unbound(), self.nodes, bound, self._preempt, looks_ahead=ahead):
            self.controller.observe(pod)
            found += 1
        pending = self.unbound()
        for pod in pending:
            self.controller.see_unschedulable(pod)
        if found:
            self.on_bound(found, len(pending))

    def _preempt(self, pod: SimulatedPod) -> None:
        """Preempt a pod, as kube-scheduler does."""
        self.preempted += 1
        self._delete_and_replace(pod)

    def evict(self, pod: SimulatedPod) -> bool:
        """Evict a pod; False if its workload's budget forbids it now."""
        if self.disruptions_allowed(pod.workload) == 0:
            return False
        self.evicted += 1
        self._delete_and_replace(pod)
        return True

    def cordon(self, node: str, *, cordoned: bool = True) -> None:
        """Cordon or uncordon a node."""
        self.nodes[node].cordoned = cordoned
        if not cordoned:
            self._changed.set()

    def join(self, machine: Machine) -> None:
        """The machine's Node is there and ready; again after a restart changes nothing.

        A Node that the machine left behind is taken over as it is, cordoned or not.
        """
        if machine.id in self.nodes:
            self.nodes[machine.id].dead = False
        else:
            self.nodes[machine.id] = node = self.node_of(machine)
            self._daemon_pods[machine.id] = self._daemons_of(node)
            for daemon in self._daemon_pods[machine.id]:
                self.controller.observe(daemon)
        self._changed.set()

    def node_of(self, machine: Machine) -> SimulatedNode:
        """The machine's Node in this cluster, with its DaemonSets' pods."""
        labels = {**class_of(machine).labels_of(machine.id), HOSTNAME_LABEL: machine.id}
        has = machine.allocatable
        node = SimulatedNode(machine.id, labels, has, dict(has), machine.taints, self._now())
        for daemon in self._daemons_of(node):
            node.use(daemon, 1)
        return node

    def die(self, node: str) -> None:
        """The machine died: its pods are lost, and its Node stays, not Ready."""
        if node in self.nodes:
            self.nodes[node].dead = True
            self.died += 1
            for pod in self.pods_on(node):
                self._delete_and_replace(pod)

    def leave(self, node: str) -> None:
        """Delete the Node with its pods."""
        for pod in self.pods_on(node):
            self._delete_and_replace(pod)
        deleted = self.nodes.pop(node, None)
        if deleted is not None:
            for daemon in self._daemon_pods.pop(node, ()):
                self.controller.forget(daemon)
            self._node_left.pop(node, asyncio.Event()).set()
            self._changed.set()
            self.on_node_deleted(deleted)

    def vanish(self) -> None:
        """The whole cluster is deleted."""
        self.gone = True
        for name in list(self._workloads):
            self.withdraw(name)
        for node in list(self.nodes):
            self.leave(node)

    async def left(self, node: str) -> None:
        """Wait until the Node is deleted."""
        if node in self.nodes:
            await self._node_left.setdefault(node, asyncio.Event()).wait()

    def _daemons_of(self, node: SimulatedNode) -> list[SimulatedPod]:
        pods = (
            SimulatedPod(f"{d.name}-{node.name}", d, self._now(), node.name) for d in self.daemons
        )
        return [pod for pod in pods if runs_on(pod.workload, node)]

    def _pods_of(self, name: str) -> list[SimulatedPod]:
        return [*self._pods_by_workload[name].values()]

    def _delete_and_replace(self, pod: SimulatedPod) -> None:
        self._remove(pod)
        workload = self._workloads.get(pod.workload.name)
        if workload is None:
            return
        if not workload.managed:
            self._workloads[workload.name] = workload.of(workload.replicas - 1)
        self._fill(self._workloads[workload.name])

    def _fill(self, workload: Workload) -> None:
        mine = self._pods_by_workload[workload.name]
        for _ in range(workload.replicas - len(mine)):
            pod = SimulatedPod(f"{workload.name}-{next(self._numbers)}", workload, self._now())
            self.pods[pod.name] = mine[pod.name] = pod
            self.controller.observe(pod)
        self._changed.set()

    def _remove(self, pod: SimulatedPod) -> None:
        del self.pods[pod.name], self._pods_by_workload[pod.workload.name][pod.name]
        if pod.node:
            self.nodes[pod.node].use(pod, -1)
        self.controller.forget(pod)
        self._changed.set()
