"""Publishes the states of this cluster's machines, as the shard reports them, as UpcomingNodes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.v1alpha1.shard_pb2 import NodeDrain, NodeStateInquiry, NodeStateUpdate
from bigfleet.api.wellknown import MACHINE_LABEL
from bigfleet.controllers.operator.bootstrap import Credentials
from bigfleet.controllers.operator.node_types import Node, NodeTaint, node_path
from bigfleet.controllers.operator.phase_effects import Removal, phase_effects
from bigfleet.controllers.work_queue import WorkQueue
from bigfleet.kube.client import APPLY_PATCH, CONFLICT, NOT_FOUND, ApiError, KubeClient
from bigfleet.kube.timestamps import rfc3339_micro
from bigfleet.kube.types import ObjectList, ObjectMeta
from bigfleet.model.machine import MachineState
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_CONCURRENCY = 16
_UPCOMING = f"{GROUP_VERSION}/upcomingnodes"
_APPLY = {"fieldManager": "bigfleet-operator", "force": "true"}

_STATES = frozenset(int(state) for state in MachineState)


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    provisioning_start_time: str = ""


class _UpcomingNode(msgspec.Struct):
    metadata: ObjectMeta
    status: _Status = msgspec.field(default_factory=_Status)


@dataclass
class _Written:
    """The last written state of a machine; `spec` is None when a previous operator wrote it."""

    phase: str
    started: str
    spec: dict[str, Any] | None = None


class UpcomingNodeController:
    """Applies node state updates, one at a time for each machine, and only the newest."""

    def __init__(
        self, client: KubeClient, credentials: Credentials, now: Callable[[], float]
    ) -> None:
        self._client, self._credentials, self._now = client, credentials, now
        self._latest: dict[str, NodeStateUpdate] = {}
        self._known: dict[str, _Written] = {}
        self._joining: set[str] = set()
        self._queue: WorkQueue[str] = WorkQueue(self._reconcile, _CONCURRENCY, self._on_rejected)
        self.run = self._queue.run

    async def load(self) -> None:
        """Read the UpcomingNodes of a previous operator."""
        found = msgspec.json.decode(
            await self._client.get(_UPCOMING), type=ObjectList[_UpcomingNode]
        )
        for node in found.items:
            status = node.status
            self._known[node.metadata.name] = _Written(status.phase, status.provisioning_start_time)

    async def inquiry(self) -> NodeStateInquiry:
        """The machines that have objects in this cluster, whatever their state, and those whose
        Nodes are being drained.
        """
        found = await self._client.get("/api/v1/nodes", {"labelSelector": MACHINE_LABEL})
        nodes = {
            (node.metadata.labels or {}).get(MACHINE_LABEL, ""): node
            for node in msgspec.json.decode(found, type=ObjectList[Node]).items
        }
        drains = [
            NodeDrain(machine_id=name, seconds_left=max(0, int(deadline - self._now())))
            for name, node in sorted(nodes.items())
            if name and (deadline := node.drain_deadline) is not None
        ]
        names = sorted({*self._known, *nodes} - {""})
        return NodeStateInquiry(machine_ids=names, drains=drains)

    def in_service(self) -> Mapping[str, Collection[NodeTaint] | None]:
        """The machines that serve this cluster as reported by the shard, with the taints they
        joined with; None where these are not known yet.
        """
        return {
            machine_id: None if known.spec is None else _taints_of(known.spec)
            for machine_id, known in self._known.items()
            if known.phase == "Ready" and self._newest_is_configured(machine_id)
        }

    def knows(self, machine_id: str) -> bool:
        """Whether the shard has reported the machine, and not its release."""
        return machine_id in self._known or machine_id in self._latest

    def _newest_is_configured(self, machine_id: str) -> bool:
        update = self._latest.get(machine_id)
        return update is None or MachineState(update.state) is MachineState.CONFIGURED

    async def prepare_join(self, machine_id: str) -> None:
        """Wait until earlier updates about a machine that is about to join are applied."""
        await self._queue.wait_done(machine_id)
        self._joining.add(machine_id)

    def enqueue(self, update: NodeStateUpdate) -> None:
        """Queue `update`; a newer one for its machine replaces it."""
        if update.state not in _STATES:
            _LOG.error("machine %s: unknown state %d", update.machine_id, update.state)
            return
        metrics.operator_node_updates.labels(MachineState(update.state).name).inc()
        self._latest[update.machine_id] = update
        self._queue.add(update.machine_id)

    async def _reconcile(self, machine_id: str) -> None:
        update = self._latest.get(machine_id)
        if update is None:
            return
        known, state = self._known.get(machine_id), MachineState(update.state)
        if state is not MachineState.IDLE:
            self._joining.discard(machine_id)
        joining = machine_id in self._joining
        step = phase_effects(known.phase if known else None, state, joining=joining)
        if step.revokes:
            await self._credentials.revoke(machine_id)
        if step.removal is not Removal.NONE:
            await self._remove_node(update, only_reclaimed=step.removal is Removal.RECLAIMED)
        if step.phase is None:
            await self._forget(machine_id)
        else:
            await self._write(update, step.phase)
        if self._latest.get(machine_id) is update:
            del self._latest[machine_id]

    async def _write(self, update: NodeStateUpdate, phase: str) -> None:
        name = update.machine_id
        known = self._known.get(name)
        started = (known and known.started) or rfc3339_micro(self._now())
        spec = _spec(update)
        if known and known.spec and not spec["resources"]:
            spec = known.spec  # an update without a description keeps the known one
        head = {"apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "UpcomingNode"}
        body = {**head, "metadata": {"name": name}}
        if known is None or known.spec != spec:
            await self._client.patch(
                f"{_UPCOMING}/{name}", {**body, "spec": spec}, APPLY_PATCH, _APPLY
            )
        status = {"phase": phase, "provisioningStartTime": started, **_reported(update, phase)}
        await self._client.patch(
            f"{_UPCOMING}/{name}/status", {**body, "status": status}, APPLY_PATCH, _APPLY
        )
        self._known[name] = _Written(phase, started, spec)

    async def _forget(self, machine_id: str) -> None:
        await _delete_if_there(self._client, f"{_UPCOMING}/{machine_id}")
        self._known.pop(machine_id, None)

    async def _remove_node(self, update: NodeStateUpdate, *, only_reclaimed: bool) -> None:
        """Delete the machine's Node; with `only_reclaimed` only if it was being drained."""
        path = node_path(update.node_name or update.machine_id)
        try:
            node = msgspec.json.decode(await self._client.get(path), type=Node)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return
            raise
        if not node.is_machine(update.machine_id, update.provider_id):
            _LOG.error(
                "keeping node %s: it is not machine %s", node.metadata.name, update.machine_id
            )
        elif not only_reclaimed or node.reclaim_deadline is not None:
            await delete_node(self._client, node)

    def _on_rejected(self, machine_id: str, error: ApiError) -> None:
        known = self._known.get(machine_id)
        if error.status == NOT_FOUND and known is not None and known.spec is not None:
            # Somebody has deleted it: without a known spec it is created again.
            self._known[machine_id] = replace(known, spec=None)
            self._queue.add(machine_id)
            return
        _LOG.error("cannot write the UpcomingNode of machine %s: %s", machine_id, error)


async def delete_node(client: KubeClient, node: Node) -> None:
    """Delete this Node by UID, not another one of its name."""
    options = {"preconditions": {"uid": node.metadata.uid}}
    try:
        await _delete_if_there(client, node_path(node.metadata.name), options)
    except ApiError as error:
        if error.status != CONFLICT:
            raise


async def _delete_if_there(client: KubeClient, path: str, options: Any = None) -> None:
    try:
        await client.delete(path, options)
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise


def _spec(update: NodeStateUpdate) -> dict[str, Any]:
    """Without empty fields: server-side apply turns a map that it empties into null."""
    taints = [{"key": t.key, "value": t.value, "effect": t.effect} for t in update.taints]
    optional = {"labels": dict(update.labels), "taints": taints}
    filled = {name: value for name, value in optional.items() if value}
    return {"resources": dict(update.resources.resources), **filled}


def _taints_of(spec: Mapping[str, Any]) -> Collection[NodeTaint]:
    return {NodeTaint(**taint) for taint in spec.get("taints", ())}


def _reported(update: NodeStateUpdate, phase: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"providerID": update.provider_id, "lastError": update.last_error}
    reported = {name: value for name, value in fields.items() if value}
    if phase in ("Ready", "Draining"):
        reported["nodeRef"] = {"name": update.node_name or update.machine_id}
    return reported
