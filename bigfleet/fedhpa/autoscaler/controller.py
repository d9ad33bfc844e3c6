"""Reconciles federated HPAs: snapshot, plan, record pending writes, write, report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from bigfleet.controllers.work_queue import WorkQueue
from bigfleet.fedhpa.autoscaler import claims, finalizer, hpa_manifest, hpa_status, rejections
from bigfleet.fedhpa.autoscaler.hpa_status import ReconcileResult
from bigfleet.fedhpa.autoscaler.member_snapshot import ReconcileMemory, snapshot
from bigfleet.fedhpa.autoscaler.member_writer import MemberWriter, ReconcileContext
from bigfleet.fedhpa.debounce import DebouncedQueue
from bigfleet.fedhpa.host_cluster import HostCluster
from bigfleet.fedhpa.members.objects import MEMBER_KINDS, NamespacedName, WorkloadName
from bigfleet.fedhpa.members.registry import MemberRegistry
from bigfleet.fedhpa.objects import (
    AUTOSCALED_BY,
    AUTOSCALERS,
    CLUSTERS,
    FINALIZER,
    Autoscaler,
    ObjectKey,
)
from bigfleet.fedhpa.selection import bounds, preferences_of, selected
from bigfleet.fedhpa.shares import ClusterBounds, DecisionPoint, Plan, Write, rebalance
from bigfleet.kube.client import CONFLICT, NOT_FOUND, ApiError
from bigfleet.kube.timestamps import rfc3339
from bigfleet.model.errors import InvalidInput, Unavailable
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_CONCURRENCY = 8
_RETRY_INTERVAL_SECONDS = 5.0


class AutoscalerController:
    """Reconciles the HPAs in members with the shares that the rules decide. `now` is Unix time."""

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
        self._memories: dict[ObjectKey, ReconcileMemory] = {}
        self._member_writer = MemberWriter(host, registry, now)
        self.add_debounced = self._debouncer.add_debounced

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            await self._queue.run()
        finally:
            self._debouncer.close()

    def hpa_changed(self, name: NamespacedName) -> None:
        """An HPA in a member has changed."""
        self.add_debounced(ObjectKey(AUTOSCALERS, name.namespace, name.name))

    def workload_changed(self, key: ObjectKey) -> None:
        """A federated workload, or its workload in a member, has changed."""
        for autoscaler in self._host.autoscalers_of(key):
            self.add_debounced(autoscaler)

    def autoscaler_changed(self, key: ObjectKey) -> None:
        """An autoscaler has changed; others that are not accepted may depend on it."""
        self.add_debounced(key)
        for other, each in self._host.autoscalers.items():
            if other.namespace == key.namespace and claims.is_not_accepted(each):
                self.add_debounced(other)

    def reachability_changed(self) -> None:
        """A member joined, left, or became reachable or unreachable."""
        for key in self._host.autoscalers:
            self.add_debounced(key)

    async def reconcile(self, key: ObjectKey) -> None:
        """Reconcile one autoscaler."""
        autoscaler = self._host.autoscalers.get(key)
        if autoscaler is None:
            self._memories.pop(key, None)
            self._debouncer.add_after(key, None)
            return
        if not (self._host.listed and self._registry.reachability_known):
            return  # requeued once the missing information arrives
        with metrics.fedhpa_reconcile_seconds.time():
            if autoscaler.metadata.deletion_timestamp is not None:
                await self._finalize(autoscaler)
                return
            if FINALIZER not in autoscaler.metadata.finalizers:
                await self._host.add_finalizer(key, autoscaler.metadata)
            # It may have been deleted during each await.
            if (held := self._host.autoscalers.get(key)) is not None:
                await self._reconcile(held)

    async def _finalize(self, autoscaler: Autoscaler) -> None:
        try:
            await finalizer.finalize(self._host, self._registry, autoscaler)
        except Unavailable:
            self._debouncer.add_after(autoscaler.key, _RETRY_INTERVAL_SECONDS)

    async def _reconcile(self, autoscaler: Autoscaler) -> None:
        result = ReconcileResult(no_target=self._no_target(autoscaler))
        try:
            bounds_of = self._bounds(autoscaler)
            self._check_claim(autoscaler)
        except InvalidInput as error:
            result.not_accepted, bounds_of = str(error), {}
        memory = self._memories.setdefault(autoscaler.key, ReconcileMemory())
        if not result.not_accepted:
            links, target = self._registry.links, _member_target(autoscaler)
            await rejections.retry_rejected(links, autoscaler, target, memory, self._now())
        ctx = self._context(autoscaler, bounds_of)
        rejected_before = set(memory.rejections)
        if not result.not_accepted:
            result.plan = rebalance(autoscaler.spec.total, ctx.members, ctx.at)
            await self._claim(ctx, result.plan)
            await self._member_writer.carry_out(ctx, result)
        result.rejections = [each.message for each in memory.rejections.values()]
        # The latest version includes our own writes.
        if (latest := self._host.autoscalers.get(autoscaler.key)) is not None:
            await self._report(self._context(latest, bounds_of), result)
        if set(memory.rejections) - rejected_before:
            self.add_debounced(autoscaler.key)  # divide its share among the others
        self._wake(autoscaler.key, result, memory)

    def _wake(self, key: ObjectKey, result: ReconcileResult, memory: ReconcileMemory) -> None:
        now = self._now()
        # A retry that is overdue waits for a change: its cluster is not reachable, for one.
        wakes = [each.until for each in memory.rejections.values() if each.until > now]
        wakes += [result.plan.wake_at] if result.plan.wake_at is not None else []
        wakes += [now + _RETRY_INTERVAL_SECONDS] if result.failures else []
        self._debouncer.add_after(key, min(wakes) - now if wakes else None)

    def _bounds(self, autoscaler: Autoscaler) -> dict[str, ClusterBounds]:
        preferences = preferences_of(autoscaler)
        return {name: bounds(preferences, name) for name in self._registry.links}

    def _no_target(self, autoscaler: Autoscaler) -> str:
        if autoscaler.target in self._host.workloads:
            return ""
        ref = autoscaler.spec.scale_target_ref
        return f"{ref.kind} {ref.name} does not exist; the HPAs wait for it"

    def _check_claim(self, autoscaler: Autoscaler) -> None:
        workload = self._host.workloads.get(autoscaler.target)
        if by := claims.conflicting_autoscaler(
            autoscaler, workload, self._host.autoscalers.values()
        ):
            what = f"{autoscaler.spec.scale_target_ref.kind}: scaleTargetRef.name"
            hint = f"is already scaled by FederatedHorizontalPodAutoscaler {by}"
            raise InvalidInput(what, autoscaler.target.name, hint)

    def _context(
        self, autoscaler: Autoscaler, bounds_of: Mapping[str, ClusterBounds]
    ) -> ReconcileContext:
        memory = self._memories.setdefault(autoscaler.key, ReconcileMemory())
        target = _member_target(autoscaler)
        members, now = self._registry.members, self._now()
        chosen = selected(autoscaler.spec.clusters, self._registry.labels)
        chosen = [name for name in chosen if name not in memory.rejections]
        ranked = [*chosen, *sorted(set(members) - set(chosen))]
        snapshots = [
            snapshot(
                autoscaler,
                members[name],
                bounds_of.get(name, ClusterBounds()),
                name in chosen,
                target,
                memory,
                now,
            )
            for name in ranked
        ]
        at = DecisionPoint(autoscaler.spec.rebalance.config(), now)
        content = hpa_manifest.content_of(autoscaler, target)
        return ReconcileContext(autoscaler, target, snapshots, at, content, memory)

    async def _claim(self, ctx: ReconcileContext, plan: Plan) -> None:
        """Annotate the workload with its clusters; its controller then leaves replicas alone."""
        memory = ctx.memory
        if memory.claimed != ctx.autoscaler.target:
            await finalizer.release_other_targets(self._host, self._registry, ctx.autoscaler)
            memory.claimed = ctx.autoscaler.target
        workload = self._host.workloads.get(ctx.autoscaler.target)
        if workload is None or workload.metadata.deletion_timestamp is not None:
            return
        names = [m.name for m in ctx.members if m.held or m.name in plan.targets]
        annotations: dict[str, str | None] = {
            AUTOSCALED_BY: ctx.autoscaler.metadata.name,
            CLUSTERS: ",".join(names),
        }
        if names and any(workload.metadata.annotations.get(k) != v for k, v in annotations.items()):
            await self._host.annotate(ctx.autoscaler.target, annotations)

    async def _report(self, ctx: ReconcileContext, result: ReconcileResult) -> None:
        status = hpa_status.status_of(
            ctx.autoscaler, ctx.snapshots, result, ctx.at, rfc3339(self._now())
        )
        key = ctx.autoscaler.key
        if status != ctx.autoscaler.status:
            await self._host.set_status(key, hpa_status.whole(status))
            if status.conditions != ctx.autoscaler.status.conditions:
                self._host.on_workload(ctx.autoscaler.target)  # it may wait for a claim
        for write in result.done:
            message = f"cluster {write.cluster}: {hpa_status.change(write)}: {write.reason}"
            _LOG.info("%s/%s: %s", key.namespace, key.name, message)
            await self._host.record_event(key, ctx.autoscaler.metadata, _event(write), message)

    def _on_rejected(self, key: ObjectKey, error: ApiError) -> None:
        # After a conflict the watch delivers the change, which requeues the key.
        level = logging.INFO if error.status in (CONFLICT, NOT_FOUND) else logging.WARNING
        _LOG.log(level, "%s/%s: %s", key.namespace, key.name, error)


def _member_target(autoscaler: Autoscaler) -> WorkloadName:
    """The workload that it scales, by its name in each member."""
    target = autoscaler.target
    return WorkloadName(MEMBER_KINDS[target.plural], target.namespace, target.name)


def _event(write: Write) -> str:
    if write.before is None:
        return "ClusterAdded"
    return "ClusterLeft" if write.after is None else "ShareMoved"
