"""Finalizes an autoscaler: deletes its HPAs, then returns replicas to the workload."""

from __future__ import annotations

import logging

from bigfleet.fedhpa.host_cluster import HostCluster
from bigfleet.fedhpa.members.objects import MEMBER_KINDS, NamespacedName, WorkloadName
from bigfleet.fedhpa.members.registry import MemberRegistry
from bigfleet.fedhpa.objects import AUTOSCALED_BY, CLUSTERS, FINALIZER, Autoscaler, ObjectKey

_LOG = logging.getLogger(__name__)


async def finalize(host: HostCluster, registry: MemberRegistry, autoscaler: Autoscaler) -> None:
    """Take one step; the finalizer is removed once the last HPA is gone."""
    if FINALIZER not in autoscaler.metadata.finalizers:
        return
    name = NamespacedName(autoscaler.metadata.namespace, autoscaler.metadata.name)
    lines = {line.name: line for line in autoscaler.status.clusters}
    waiting: list[str] = []
    for cluster, link in registry.links.items():
        if link.state.reachable:
            if name in link.state.hpas:
                await link.delete_hpa(name)
        elif name in link.state.hpas or (not link.state.ever_listed and cluster in lines):
            waiting.append(cluster)
    if waiting:
        message = f"waiting for {', '.join(waiting)}: unreachable, and may still have its HPA"
        await host.record_event(autoscaler.key, autoscaler.metadata, "WaitingForMembers", message)
        return
    for key in _claimed(host, autoscaler):
        await _release(host, registry, key)
    await host.remove_finalizer(autoscaler.key, autoscaler.metadata)


async def release_other_targets(
    host: HostCluster, registry: MemberRegistry, autoscaler: Autoscaler
) -> None:
    """Release the workloads that this autoscaler scaled before its target changed."""
    for key in _claimed(host, autoscaler):
        if key != autoscaler.target:
            await _release(host, registry, key)


def _claimed(host: HostCluster, autoscaler: Autoscaler) -> list[ObjectKey]:
    metadata = autoscaler.metadata
    return [
        key
        for key, workload in host.workloads.items()
        if key.namespace == metadata.namespace and workload.autoscaled_by == metadata.name
    ]


async def _release(host: HostCluster, registry: MemberRegistry, key: ObjectKey) -> None:
    """Set the workload's replicas to what runs now, then release the claim."""
    name = WorkloadName(MEMBER_KINDS[key.plural], key.namespace, key.name)
    member_workloads = [m.workloads[name] for m in registry.members.values() if name in m.workloads]
    if total := sum(member_workload.replicas for member_workload in member_workloads):
        await host.scale(key, total)
    await host.annotate(key, {AUTOSCALED_BY: None, CLUSTERS: None})
    _LOG.info("%s/%s: released with %d replicas", key.namespace, key.name, total)
