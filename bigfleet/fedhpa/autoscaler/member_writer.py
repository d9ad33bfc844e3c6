"""Executes a plan: recorded in the status first, then written to members one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bigfleet.fedhpa.autoscaler import hpa_manifest, hpa_status, rejections
from bigfleet.fedhpa.autoscaler.hpa_status import ReconcileResult
from bigfleet.fedhpa.autoscaler.member_snapshot import (
    PENDING_WRITE_SECONDS,
    MemberSnapshot,
    PendingWrite,
    ReconcileMemory,
    conservative_share,
)
from bigfleet.fedhpa.host_cluster import HostCluster
from bigfleet.fedhpa.members.link import MemberLink
from bigfleet.fedhpa.members.objects import SPEC_HASH, NamespacedName, WorkloadName, spec_hash
from bigfleet.fedhpa.members.registry import MemberRegistry
from bigfleet.fedhpa.objects import Autoscaler
from bigfleet.fedhpa.shares import DecisionPoint, Member, Write
from bigfleet.kube.client import ApiError
from bigfleet.kube.timestamps import rfc3339
from bigfleet.model.errors import Unavailable
from bigfleet.observe import metrics


@dataclass(frozen=True)
class ReconcileContext:
    """The inputs of one pass."""

    autoscaler: Autoscaler
    target: WorkloadName
    snapshots: list[MemberSnapshot]
    at: DecisionPoint
    content: Mapping[str, Any]
    memory: ReconcileMemory

    @property
    def members(self) -> list[Member]:
        return [each.member for each in self.snapshots]


class MemberWriter:
    """Writes HPAs to members. `now` is Unix time."""

    def __init__(
        self, host: HostCluster, registry: MemberRegistry, now: Callable[[], float]
    ) -> None:
        self._host, self._registry, self._now = host, registry, now

    async def carry_out(self, ctx: ReconcileContext, result: ReconcileResult) -> None:
        """Execute the plan up to the first failure; `result` records what was done."""
        await self._repair_content(ctx, result)
        if not result.plan.writes:
            return
        lines = hpa_status.before_writing(ctx.autoscaler, ctx.snapshots, result.plan.writes)
        status = {"clusters": msgspec.to_builtins(lines)}
        await self._host.set_status(ctx.autoscaler.key, status)
        annotations = {s.member.name: hpa_manifest.kept_annotations(s.hpa) for s in ctx.snapshots}
        for write in result.plan.writes:
            try:
                await self._write(ctx, write, annotations)
            except (ApiError, Unavailable) as error:
                self._failed(ctx, result, write, error)
                return
            result.done.append(write)
            metrics.fedhpa_moves.labels(write.reason).inc()

    def _failed(
        self,
        ctx: ReconcileContext,
        result: ReconcileResult,
        write: Write,
        error: ApiError | Unavailable,
    ) -> None:
        metrics.fedhpa_failures.labels(write.cluster).inc()
        if write.before is None and rejections.is_rejection(error):
            rejections.record(ctx.memory, write.cluster, error, ctx.content, self._now())
        else:
            result.failures.append(rejections.message_of(write.cluster, error))

    async def _write(
        self, ctx: ReconcileContext, write: Write, annotations: dict[str, dict[str, str]]
    ) -> None:
        link = self._link(write.cluster)
        memory = ctx.memory
        share = conservative_share(write.before, write.after)
        memory.pending_writes[write.cluster] = PendingWrite(
            share, write.after, self._now() + PENDING_WRITE_SECONDS
        )
        try:
            await self._send(ctx, write, link, annotations)
        except ApiError as error:
            if error.status < 500:  # rejected: nothing was changed
                memory.pending_writes.pop(write.cluster, None)
            raise
        memory.pending_writes.pop(write.cluster, None)

    async def _send(
        self,
        ctx: ReconcileContext,
        write: Write,
        link: MemberLink,
        annotations: dict[str, dict[str, str]],
    ) -> None:
        metadata = ctx.autoscaler.metadata
        name = NamespacedName(metadata.namespace, metadata.name)
        if write.after is None:
            await link.delete_hpa(name)
            annotations[write.cluster] = {}
            ctx.memory.last_applied.pop(write.cluster, None)
            return
        if write.before is None:
            await link.check_managed(name, ctx.target)
        kept = hpa_manifest.updated_annotations(
            write, annotations[write.cluster], rfc3339(self._now())
        )
        body = hpa_manifest.hpa_body(ctx.autoscaler, ctx.content, write.after, kept)
        await link.apply_hpa(name, body)
        annotations[write.cluster] = kept
        self._record_applied(ctx, write.cluster)

    async def _repair_content(self, ctx: ReconcileContext, result: ReconcileResult) -> None:
        """Restore HPAs whose metrics or behavior differ from the user's."""
        for each in ctx.snapshots:
            name, hpa = each.member.name, each.hpa
            if hpa is None or not each.member.reachable or not self._is_stale(ctx, name, each):
                continue
            body = hpa_manifest.hpa_body(
                ctx.autoscaler, ctx.content, hpa.share, hpa_manifest.kept_annotations(hpa)
            )
            try:
                await self._link(name).check_managed(hpa.name, ctx.target)
                await self._link(name).apply_hpa(hpa.name, body)
            except (ApiError, Unavailable) as error:
                result.failures.append(rejections.message_of(name, error))
                continue
            self._record_applied(ctx, name)

    def _record_applied(self, ctx: ReconcileContext, cluster: str) -> None:
        """Remember the applied content with the API server's defaults, to detect later changes."""
        metadata = ctx.autoscaler.metadata
        hpa = self._link(cluster).state.hpas.get(NamespacedName(metadata.namespace, metadata.name))
        if hpa is not None:
            ctx.memory.last_applied[cluster] = hpa.last_applied

    def _link(self, cluster: str) -> MemberLink:
        link = self._registry.links.get(cluster)
        if link is None:
            raise Unavailable(f"member {cluster} has left the federation")
        return link

    def _is_stale(self, ctx: ReconcileContext, name: str, each: MemberSnapshot) -> bool:
        assert each.hpa is not None
        digest = each.hpa.metadata.annotations.get(SPEC_HASH)
        last_applied = ctx.memory.last_applied
        if digest != spec_hash(ctx.content):
            return True
        return last_applied.setdefault(name, each.hpa.last_applied) != each.hpa.last_applied
