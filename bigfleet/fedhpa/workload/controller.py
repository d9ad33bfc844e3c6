"""Reconciles federated workloads in the members; an active autoscaler controls the replicas."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from bigfleet.controllers.work_queue import WorkQueue
from bigfleet.fedhpa.autoscaler.claims import is_not_accepted
from bigfleet.fedhpa.autoscaler.hpa_status import conditions
from bigfleet.fedhpa.debounce import DebouncedQueue
from bigfleet.fedhpa.host_cluster import HostCluster
from bigfleet.fedhpa.members.link import MemberLink
from bigfleet.fedhpa.members.objects import MEMBER_KINDS, SPEC_HASH, WorkloadName
from bigfleet.fedhpa.members.registry import MemberRegistry
from bigfleet.fedhpa.objects import (
    AUTOSCALERS,
    FINALIZER,
    Autoscaler,
    ObjectKey,
    Workload,
    WorkloadStatus,
)
from bigfleet.fedhpa.selection import bounds, selected
from bigfleet.fedhpa.shares import ClusterBounds
from bigfleet.fedhpa.workload import manifests
from bigfleet.fedhpa.workload.placement import (
    ClusterPlacement,
    Placement,
    divide_replicas,
    placement_by_list,
)
from bigfleet.kube.client import CONFLICT, NOT_FOUND, ApiError
from bigfleet.kube.timestamps import rfc3339
from bigfleet.model.errors import Unavailable

_LOG = logging.getLogger(__name__)
_CONCURRENCY = 8
_RETRY_INTERVAL_SECONDS = 5.0
_PLURALS = {kind: plural for plural, kind in MEMBER_KINDS.items()}


class WorkloadController:
    """Creates, updates, scales and deletes the workloads in members. `now` is Unix time."""

    def __init__(
        self,
        host: HostCluster,
        registry: MemberRegistry,
        now: Callable[[], float],
        debounce_seconds: float,
    ) -> None:
        self._host, self._registry, self._now = host, registry, now
        self._queue: WorkQueue[ObjectKey] = WorkQueue(
            self.reconcile, _CONCURRENCY, self._on_rejected
        )
        self._debouncer: DebouncedQueue[ObjectKey] = DebouncedQueue(
            self._queue.add, debounce_seconds
        )
        self._last_applied: dict[tuple[ObjectKey, str], str] = {}
        self.add_debounced = self._debouncer.add_debounced

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            await self._queue.run()
        finally:
            self._debouncer.close()

    def member_workload_changed(self, name: WorkloadName) -> None:
        """A workload in a member has changed."""
        self.add_debounced(ObjectKey(_PLURALS[name.kind], name.namespace, name.name))

    def reachability_changed(self) -> None:
        """A member joined, left, or became reachable or unreachable."""
        for key in self._host.workloads:
            self.add_debounced(key)

    async def reconcile(self, key: ObjectKey) -> None:
        """Reconcile one workload."""
        workload = self._host.workloads.get(key)
        if workload is None or not (self._host.listed and self._registry.reachability_known):
            return
        name = WorkloadName(MEMBER_KINDS[key.plural], key.namespace, key.name)
        if workload.metadata.deletion_timestamp is not None:
            try:
                await self._remove(key, workload, name)
            except Unavailable:
                self._debouncer.add_after(key, _RETRY_INTERVAL_SECONDS)
            return
        if FINALIZER not in workload.metadata.finalizers:
            await self._host.add_finalizer(key, workload.metadata)
        # It may have been claimed or deleted meanwhile.
        if (held := self._host.workloads.get(key)) is not None:
            await self._place(key, held, name)

    async def _place(self, key: ObjectKey, workload: Workload, name: WorkloadName) -> None:
        autoscaler = self._autoscaler(workload)
        if autoscaler is None and self._will_be_claimed(key):
            return  # else its own replicas would be placed first; the claim requeues it
        places = self._places(workload, name, autoscaler)
        if autoscaler is not None:
            least = autoscaler.spec.min_replicas
            placement = placement_by_list(workload.listed_clusters, least, places)
        else:
            placement = divide_replicas(workload.spec.replicas, places)
        failures = await self._carry_out(key, workload, name, placement)
        await self._report(key, name, placement, autoscaler, failures)
        self._debouncer.add_after(key, _RETRY_INTERVAL_SECONDS if failures else None)

    def _autoscaler(self, workload: Workload) -> Autoscaler | None:
        """The autoscaler that scales it; None if that was deleted."""
        by = workload.autoscaled_by
        key = ObjectKey(AUTOSCALERS, workload.metadata.namespace, by)
        return self._host.autoscalers.get(key) if by else None

    def _will_be_claimed(self, key: ObjectKey) -> bool:
        """Whether an autoscaler will claim this workload, or has not been reconciled yet."""
        for name in self._host.autoscalers_of(key):
            each = self._host.autoscalers.get(name)
            if each is None or each.metadata.deletion_timestamp is not None:
                continue
            if not is_not_accepted(each) and (each.status.clusters or not each.status.conditions):
                return True
        return False

    def _places(
        self, workload: Workload, name: WorkloadName, autoscaler: Autoscaler | None
    ) -> list[ClusterPlacement]:
        chosen = selected(workload.spec.clusters, self._registry.labels)
        members = self._registry.members
        places = []
        for cluster in [*chosen, *sorted(set(members) - set(chosen))]:
            member_workload = members[cluster].workloads.get(name)
            limits = ClusterBounds() if autoscaler else bounds(workload.spec.preferences, cluster)
            places.append(
                ClusterPlacement(
                    cluster,
                    limits,
                    cluster in chosen,
                    members[cluster].reachable,
                    member_workload.replicas if member_workload else None,
                    member_workload.status.ready_replicas
                    if member_workload and members[cluster].reachable
                    else 0,
                )
            )
        return places

    async def _carry_out(
        self, key: ObjectKey, workload: Workload, name: WorkloadName, placement: Placement
    ) -> list[str]:
        failures: list[str] = []
        for cluster, replicas in placement.replicas.items():
            try:
                await self._apply_part(key, workload, name, self._link(cluster), replicas)
            except (ApiError, Unavailable) as error:
                failures.append(f"cluster {cluster}: {error}")
        for cluster in placement.removed:
            try:
                await self._link(cluster).delete_workload(name)
            except (ApiError, Unavailable) as error:
                failures.append(f"cluster {cluster}: {error}")
        return failures

    async def _apply_part(
        self,
        key: ObjectKey,
        workload: Workload,
        name: WorkloadName,
        link: MemberLink,
        replicas: int | None,
    ) -> None:
        member_workload, memory = link.state.workloads.get(name), (key, link.state.name)
        body = manifests.body_of(workload, name)
        fresh = member_workload is not None and (
            member_workload.metadata.annotations.get(SPEC_HASH)
            == body["metadata"]["annotations"][SPEC_HASH]
            and self._last_applied.setdefault(memory, manifests.last_applied(member_workload))
            == manifests.last_applied(member_workload)
        )
        if not fresh:
            await link.apply_workload(name, body)
            member_workload = link.state.workloads.get(name)
            if member_workload is not None:
                self._last_applied[memory] = manifests.last_applied(member_workload)
        if (
            member_workload is not None
            and replicas is not None
            and member_workload.replicas != replicas
        ):
            await link.scale(name, replicas)

    def _link(self, cluster: str) -> MemberLink:
        link = self._registry.links.get(cluster)
        if link is None:
            raise Unavailable("has left the federation")
        return link

    async def _remove(self, key: ObjectKey, workload: Workload, name: WorkloadName) -> None:
        """Delete it in all members, then remove the finalizer."""
        if FINALIZER not in workload.metadata.finalizers:
            return
        waiting = []
        for cluster, link in self._registry.links.items():
            if link.state.reachable and name in link.state.workloads:
                await link.delete_workload(name)
            elif not link.state.reachable and self._may_be_in(workload, link, name):
                waiting.append(cluster)
        if waiting:
            message = f"waiting for {', '.join(waiting)}: unreachable, and may still run it"
            await self._host.record_event(key, workload.metadata, "WaitingForMembers", message)
            return
        await self._host.remove_finalizer(key, workload.metadata)

    def _may_be_in(self, workload: Workload, link: MemberLink, name: WorkloadName) -> bool:
        known = {line["name"] for line in workload.status.clusters}
        return name in link.state.workloads or (
            not link.state.ever_listed and link.state.name in known
        )

    async def _report(
        self,
        key: ObjectKey,
        name: WorkloadName,
        placement: Placement,
        autoscaler: Autoscaler | None,
        failures: Sequence[str],
    ) -> None:
        workload = self._host.workloads.get(key)
        if workload is None:
            return
        lines = [self._line(cluster, name, placement) for cluster in self._registry.links]
        lines = [line for line in lines if line]
        status = WorkloadStatus(
            workload.metadata.generation,
            sum(line.get("replicas", 0) for line in lines),
            sum(line.get("readyReplicas", 0) for line in lines),
            conditions(
                workload.status.conditions,
                _conditions(workload, autoscaler, failures),
                rfc3339(self._now()),
            ),
            lines,
        )
        if status != workload.status:
            await self._host.set_status(key, _whole(status))

    def _line(self, cluster: str, name: WorkloadName, placement: Placement) -> dict[str, Any]:
        state = self._registry.links[cluster].state
        member_workload = state.workloads.get(name)
        if member_workload is None and cluster not in placement.replicas:
            return {}
        where = "Present" if member_workload else "Missing"
        if member_workload and state.reachable and cluster not in placement.replicas:
            where = "Leaving"
        line: dict[str, Any] = {
            "name": cluster,
            "state": where if state.reachable else "Unreachable",
        }
        if member_workload is not None:
            line |= {
                "replicas": member_workload.status.replicas,
                "readyReplicas": member_workload.status.ready_replicas,
            }
        return line

    def _on_rejected(self, key: ObjectKey, error: ApiError) -> None:
        # After a conflict the watch delivers the change, which requeues the key.
        level = logging.INFO if error.status in (CONFLICT, NOT_FOUND) else logging.WARNING
        _LOG.log(level, "%s/%s: %s", key.namespace, key.name, error)


def _whole(status: WorkloadStatus) -> dict[str, Any]:
    """With explicit zeros and empty lists: a merge patch does not change omitted fields."""
    found: dict[str, Any] = msgspec.to_builtins(status)
    return {"replicas": 0, "readyReplicas": 0, "conditions": [], "clusters": [], **found}


def _conditions(
    workload: Workload, autoscaler: Autoscaler | None, failures: Sequence[str]
) -> dict[str, tuple[bool, str, str]]:
    overridden = (
        f"scaled by FederatedHorizontalPodAutoscaler {workload.autoscaled_by}; replicas, clusters "
        f"and preferences of this object are ignored. Clusters: "
        f"{', '.join(workload.listed_clusters)}"
    )
    return {
        "Autoscaled": (
            autoscaler is not None,
            "Overridden" if autoscaler else "SpecReplicas",
            overridden if autoscaler else "",
        ),
        "Applied": (not failures, "Failed" if failures else "AllApplied", "; ".join(failures)),
    }
