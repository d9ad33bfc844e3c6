"""When an autoscaler goes: its HPAs first, then the workload's own replicas count again."""

from __future__ import annotations

import logging

from bigfleet.federation.host import Host
from bigfleet.federation.members.objects import MEMBER_KINDS, Name, WorkloadName
from bigfleet.federation.members.registry import Registry
from bigfleet.federation.objects import AUTOSCALED_BY, CLUSTERS, FINALIZER, Autoscaler, Key

_LOG = logging.getLogger(__name__)


async def hand_back(host: Host, registry: Registry, autoscaler: Autoscaler) -> None:
    """Take one step; whoever is waited for will be heard of. Not before the last HPA is gone."""
    if FINALIZER not in autoscaler.metadata.finalizers:
        return
    name = Name(autoscaler.metadata.namespace, autoscaler.metadata.name)
    lines = {line.name: line for line in autoscaler.status.clusters}
    waiting: list[str] = []
    for cluster, link in registry.links.items():
        if link.state.reachable:
            if name in link.state.hpas:
                await link.delete_hpa(name)
        elif name in link.state.hpas or (not link.state.was_seen and cluster in lines):
            waiting.append(cluster)
    if waiting:
        sentence = f"waits for {', '.join(waiting)} to answer, where its HPA still works"
        await host.tell(autoscaler.key, autoscaler.metadata, "WaitingForMembers", sentence)
        return
    for key in _claimed(host, autoscaler):
        await _release(host, registry, key)
    await host.let_go(autoscaler.key, autoscaler.metadata)


async def release_others(host: Host, registry: Registry, autoscaler: Autoscaler) -> None:
    """Give back what this autoscaler scaled before its target was changed."""
    for key in _claimed(host, autoscaler):
        if key != autoscaler.target:
            await _release(host, registry, key)


def _claimed(host: Host, autoscaler: Autoscaler) -> list[Key]:
    metadata = autoscaler.metadata
    return [
        key
        for key, workload in host.workloads.items()
        if key.namespace == metadata.namespace and workload.autoscaled_by == metadata.name
    ]


async def _release(host: Host, registry: Registry, key: Key) -> None:
    """What runs now becomes the workload's own wish, so that nothing jumps; then it counts."""
    name = WorkloadName(MEMBER_KINDS[key.plural], key.namespace, key.name)
    parts = [m.workloads[name] for m in registry.members.values() if name in m.workloads]
    if total := sum(part.replicas for part in parts):
        await host.scale(key, total)
    await host.annotate(key, {AUTOSCALED_BY: None, CLUSTERS: None})
    _LOG.info("%s/%s: replicas are its own again: %d", key.namespace, key.name, total)
