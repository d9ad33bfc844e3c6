"""Clusters that reject an HPA, and are excluded until they accept it.

A namespace may be missing, a quota exceeded, or an object of that name not be managed by us.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bigfleet.fedhpa.autoscaler import hpa_manifest
from bigfleet.fedhpa.autoscaler.member_snapshot import ReconcileMemory, Rejection
from bigfleet.fedhpa.members.link import MemberLink
from bigfleet.fedhpa.members.objects import NamespacedName, WorkloadName, spec_hash
from bigfleet.fedhpa.objects import Autoscaler
from bigfleet.fedhpa.shares import Share
from bigfleet.kube.client import NOT_FOUND, ApiError, is_transient
from bigfleet.model.errors import Unavailable

_RETRY_INTERVAL_SECONDS = 60.0


def is_rejection(error: Exception) -> bool:
    """Whether the member's API server rejected the request, and would do so again."""
    return isinstance(error, ApiError) and not is_transient(error)


def message_of(cluster: str, error: Exception) -> str:
    """The error with its cluster, and a hint."""
    if isinstance(error, ApiError):
        missing = error.status == NOT_FOUND and error.message.startswith("namespaces ")
        hint = "; create it there" if missing else ""
        return f"cluster {cluster}: {error}{hint}"
    return str(error)


def record(
    memory: ReconcileMemory, cluster: str, error: Exception, content: Mapping[str, Any], now: float
) -> None:
    """Exclude the cluster from now on."""
    digest, until = spec_hash(content), now + _RETRY_INTERVAL_SECONDS
    memory.rejections[cluster] = Rejection(message_of(cluster, error), digest, until)


async def retry_rejected(
    links: Mapping[str, MemberLink],
    autoscaler: Autoscaler,
    target: WorkloadName,
    memory: ReconcileMemory,
    now: float,
) -> None:
    """Retry due clusters by a dry run, and forget those that have left."""
    content = hpa_manifest.content_of(autoscaler, target)
    name = NamespacedName(autoscaler.metadata.namespace, autoscaler.metadata.name)
    body = hpa_manifest.hpa_body(autoscaler, content, Share(1, 1), {})
    digest = spec_hash(content)
    for cluster, rejection in list(memory.rejections.items()):
        link = links.get(cluster)
        if link is None:
            del memory.rejections[cluster]
        elif link.state.reachable and (now >= rejection.until or rejection.content != digest):
            try:
                await link.dry_run_hpa(name, target, body)
            except (ApiError, Unavailable) as error:
                record(memory, cluster, error, content, now)
            else:
                del memory.rejections[cluster]
