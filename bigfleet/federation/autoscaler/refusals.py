"""Clusters that do not take an HPA: the others share without them, until they do.

A namespace may be missing there, a quota be used up, an object of that name be somebody else's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bigfleet.api.kube.client import NOT_FOUND, ApiError, is_transient
from bigfleet.federation.autoscaler import writing
from bigfleet.federation.autoscaler.views import Memory, Refusal
from bigfleet.federation.members.link import MemberLink
from bigfleet.federation.members.objects import Name, WorkloadName
from bigfleet.federation.objects import Autoscaler
from bigfleet.federation.shares import Share
from bigfleet.model.errors import Unavailable

_ASKED_AGAIN_SECONDS = 60.0


def is_refusal(error: Exception) -> bool:
    """Whether the member's API server said no, and would say so again."""
    return isinstance(error, ApiError) and not is_transient(error)


def sentence_of(cluster: str, error: Exception) -> str:
    """Which cluster, and what to do there."""
    if isinstance(error, ApiError):
        missing = error.status == NOT_FOUND and error.message.startswith("namespaces ")
        hint = "; create it there" if missing else ""
        return f"cluster {cluster}: {error}{hint}"
    return str(error)


def note(
    memory: Memory, cluster: str, error: Exception, content: Mapping[str, Any], now: float
) -> None:
    """From now on it is done without this cluster."""
    digest, until = writing.digest_of(content), now + _ASKED_AGAIN_SECONDS
    memory.refusals[cluster] = Refusal(sentence_of(cluster, error), digest, until)


async def ask_again(
    links: Mapping[str, MemberLink],
    autoscaler: Autoscaler,
    target: WorkloadName,
    memory: Memory,
    now: float,
) -> None:
    """Try, without changing anything, whether those that are due, or have left, still refuse."""
    content = writing.content_of(autoscaler, target)
    name = Name(autoscaler.metadata.namespace, autoscaler.metadata.name)
    body = writing.hpa_body(autoscaler, content, Share(1, 1), {})
    digest = writing.digest_of(content)
    for cluster, refusal in list(memory.refusals.items()):
        link = links.get(cluster)
        if link is None:
            del memory.refusals[cluster]
        elif link.state.reachable and (now >= refusal.until or refusal.content != digest):
            try:
                await link.try_hpa(name, target, body)
            except (ApiError, Unavailable) as error:
                note(memory, cluster, error, content, now)
            else:
                del memory.refusals[cluster]
