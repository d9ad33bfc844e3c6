"""NodeLimits for a roll-up: what still runs on machines whose Nodes take no new pods.

When a roll-up is built, the Pods of only those Nodes are listed, of at most a few hundred, the
least recently listed first. The others, and those that cannot be listed in time, keep their last
amounts, so that no Node delays a roll-up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

import msgspec

from bigfleet.api.limit_codec import LimitReason, NodeLimit, limits_to_wire
from bigfleet.api.v1alpha1 import capacity_pb2
from bigfleet.api.wellknown import MACHINE_LABEL
from bigfleet.controllers.operator.node_health import NodeHealth, UnfitMachine
from bigfleet.controllers.operator.node_types import Node, node_path
from bigfleet.controllers.operator.pods import has_terminated, query_of_pods
from bigfleet.controllers.operator.upcoming_nodes import UpcomingNodeController
from bigfleet.controllers.podspec.amounts import effective_requests
from bigfleet.controllers.podspec.unsupported import Unsupported
from bigfleet.kube.client import CONNECTION_ERRORS, NOT_FOUND, ApiError, KubeClient
from bigfleet.kube.pod_types import PodSpec, PodStatus
from bigfleet.kube.timestamps import rfc3339
from bigfleet.kube.types import ObjectList, ObjectMeta, is_per_node
from bigfleet.kube.watch import Listed, Watch
from bigfleet.model import resources
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_LISTS_AT_ONCE = 16
_MAX_LISTS = 200
_LIST_DEADLINE_SECONDS = 5.0
# Without access to Nodes the cluster is served all the same.
_LIST_TIMEOUT_SECONDS = 10.0
_COMPONENT = "bigfleet-operator"

Amounts = Mapping[str, int]


class _Pod(msgspec.Struct):
    metadata: ObjectMeta
    spec: PodSpec
    status: PodStatus = msgspec.field(default_factory=PodStatus)


def amounts_of(pods: Sequence[_Pod]) -> Amounts:
    """What pods occupy on their Node, terminating ones included; without per-node pods, which are
    not part of the demand.
    """
    amounts = []
    for pod in pods:
        if has_terminated(pod.status.phase) or is_per_node(
            pod.metadata.owner_references, pod.metadata.annotations
        ):
            continue
        with suppress(Unsupported):
            amounts.append(effective_requests(pod.spec, pod.status))
    return resources.add(amounts)


class NodeLimits:
    """Watches the Nodes of BigFleet's machines; `changed` is called when a relevant part changes.

    `now` is in monotonic seconds, `unix_now` is Unix time.
    """

    def __init__(
        self,
        client: KubeClient,
        machines: UpcomingNodeController,
        ready_timeout_seconds: float,
        changed: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
        unix_now: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._machines, self._changed = client, machines, changed
        self._ready_timeout_seconds, self._now, self._unix_now = (
            ready_timeout_seconds,
            now,
            unix_now,
        )
        self._watch = Watch(client, "/api/v1/nodes", Node, {"labelSelector": MACHINE_LABEL})
        self._health = NodeHealth(ready_timeout_seconds)
        self._listed = asyncio.Event()
        self._lists = asyncio.Semaphore(_LISTS_AT_ONCE)
        self._held_amounts: dict[str, Amounts] = {}
        self._limits: dict[str, NodeLimit] = {}
        self._unlabelled: dict[str, Node] = {}
        self._orphaned_since: dict[str, float] = {}
        self._reported: set[str] = set()

    async def wait_listed(self) -> None:
        """Wait until the Nodes are listed, with a timeout."""
        try:
            async with asyncio.timeout(_LIST_TIMEOUT_SECONDS):
                await self._listed.wait()
        except TimeoutError:
            why = self._watch.stats.last_error or "no answer yet"
            _LOG.error("all machines count as healthy until Nodes can be listed: %s", why)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with aclosing(self._watch.follow()) as changes:
            async for change in changes:
                if isinstance(change, Listed):
                    self._replace(change.items)
                elif change.deleted:
                    self._health.remove(change.item.metadata.name, self._machines.in_service())
                elif not self._health.put(change.item):
                    continue
                self._changed()

    def forget(self, machine_id: str) -> None:
        """Reset what is known of a machine that joins again."""
        self._health.forget(machine_id)

    def is_broken(self, machine_id: str) -> bool:
        """Whether the last roll-up reported the machine as broken."""
        limit = self._limits.get(machine_id)
        return limit is not None and limit.broken

    async def current(self) -> Sequence[capacity_pb2.NodeLimit]:
        """The current limits."""
        if not self._listed.is_set():
            return []
        self._unlabelled = {}
        machines = self._machines.in_service()
        candidates = self._health.unfit_machines(machines, self._now(), self._unix_now())
        unfit_machines = await self._confirmed(candidates)
        await self._refresh_held_amounts(unfit_machines)
        limits = {}
        for unfit in unfit_machines:
            amounts = self._held_amounts.get(unfit.machine_id) if unfit.counts_pods else {}
            if amounts is not None:
                limits[unfit.machine_id] = _limit(unfit, amounts)
        self._report_changes(limits)
        self._limits = limits
        await self._report_orphaned_nodes()
        return list(limits_to_wire([limits[name] for name in sorted(limits)]))

    def _replace(self, nodes: Sequence[Node]) -> None:
        machines = self._machines.in_service()
        listed = {node.metadata.name for node in nodes}
        for gone in self._health.names():
            if gone not in listed:
                self._health.remove(gone, machines)
        for node in nodes:
            self._health.put(node)
        self._listed.set()

    async def _confirmed(self, unfit_machines: Sequence[UnfitMachine]) -> Sequence[UnfitMachine]:
        """Without missing machines whose Nodes only lost their label, or cannot be read."""
        missing = [v.machine_id for v in unfit_machines if v.reason is LimitReason.MISSING]
        gone = await asyncio.gather(*(self._is_gone(name) for name in missing))
        there = {name for name, is_gone in zip(missing, gone, strict=True) if not is_gone}
        return [unfit for unfit in unfit_machines if unfit.machine_id not in there]

    async def _is_gone(self, name: str) -> bool:
        try:
            async with self._lists, asyncio.timeout(_LIST_DEADLINE_SECONDS):
                found = await self._client.get(node_path(name))
        except ApiError as error:
            return error.status == NOT_FOUND
        except CONNECTION_ERRORS:
            return False
        self._unlabelled[name] = msgspec.json.decode(found, type=Node)
        return False

    async def _refresh_held_amounts(self, unfit_machines: Sequence[UnfitMachine]) -> None:
        """List the pods of `unfit_machines`; a failed list keeps the last amounts."""
        names = {unfit.machine_id for unfit in unfit_machines if unfit.counts_pods}
        self._held_amounts = {
            name: held for name, held in self._held_amounts.items() if name in names
        }
        due = [*sorted(names - self._held_amounts.keys()), *self._held_amounts][:_MAX_LISTS]
        lists = [asyncio.create_task(self._list(name)) for name in due]
        if lists:
            _, late = await asyncio.wait(lists, timeout=_LIST_DEADLINE_SECONDS)
            for task in late:
                task.cancel()
            if late:
                _LOG.warning("the pods of %d Nodes could not be listed in time", len(late))

    async def _list(self, name: str) -> None:
        query = query_of_pods(name, current=False)
        try:
            async with self._lists:
                raw = await self._client.get("/api/v1/pods", query)
            held = amounts_of(msgspec.json.decode(raw, type=ObjectList[_Pod]).items)
            self._held_amounts.pop(name, None)  # to the end: least recently listed first
            self._held_amounts[name] = held
        except (ApiError, msgspec.MsgspecError, *CONNECTION_ERRORS) as error:
            _LOG.warning("cannot list the pods of node %s: %s", name, str(error) or repr(error))

    def _report_changes(self, limits: Mapping[str, NodeLimit]) -> None:
        counts = Counter(limit.reason for limit in limits.values())
        for reason in LimitReason:
            metrics.operator_limited_nodes.labels(reason.value).set(counts[reason])
        metrics.operator_broken_nodes.set(sum(limit.broken for limit in limits.values()))
        for name, limit in limits.items():
            before = self._limits.get(name)
            if before is None or (before.reason, before.broken) != (limit.reason, limit.broken):
                what = "is broken" if limit.broken else "takes no new pods"
                _LOG.warning("machine %s %s: %s, %s", name, what, limit.reason.value, limit.message)

    async def _report_orphaned_nodes(self) -> None:
        """Report Nodes whose machine is unknown to the shard, or has another name: they cost money,
        and are not counted.
        """
        unlabelled = [node for node in self._unlabelled.values() if node.not_owned_reason]
        orphaned_nodes = [*self._health.orphaned_nodes(), *unlabelled]
        orphaned = {node.metadata.name: (node, node.not_owned_reason) for node in orphaned_nodes}
        for node in self._health.ours():
            if not self._machines.knows(node.machine):
                why = f"the shard does not know machine {node.machine} in this cluster"
                orphaned[node.metadata.name] = node, why
        now = self._now()
        self._orphaned_since = {name: self._orphaned_since.get(name, now) for name in orphaned}
        held = [
            n
            for n, since in self._orphaned_since.items()
            if now - since >= self._ready_timeout_seconds
        ]
        metrics.operator_orphaned_nodes.set(len(held))
        self._reported &= set(held)
        for name in held:
            if name not in self._reported:
                self._reported.add(name)
                await self._warn(*orphaned[name])

    async def _warn(self, node: Node, why: str) -> None:
        _LOG.warning("node %s is not counted: %s", node.metadata.name, why)
        try:
            await self._client.create(
                "/api/v1/namespaces/default/events", _event(node, why, self._unix_now())
            )
        except (ApiError, *CONNECTION_ERRORS) as error:
            _LOG.info("no Event for node %s: %s", node.metadata.name, str(error) or repr(error))


def _limit(unfit: UnfitMachine, amounts: Amounts) -> NodeLimit:
    return NodeLimit(
        unfit.machine_id,
        unfit.reason,
        unfit.message,
        tuple(sorted((name, amount) for name, amount in amounts.items() if amount)),
        unfit.broken,
    )


def _event(node: Node, why: str, now: float) -> dict[str, Any]:
    timestamp = rfc3339(now)
    about = {"apiVersion": "v1", "kind": "Node", "name": node.metadata.name}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{node.metadata.name[:200]}.", "namespace": "default"},
        "involvedObject": {**about, "uid": node.metadata.uid},
        "type": "Warning",
        "reason": "MachineUnknown",
        "message": f"BigFleet does not count this Node: {why}",
        "firstTimestamp": timestamp,
        "lastTimestamp": timestamp,
        "count": 1,
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
    }
