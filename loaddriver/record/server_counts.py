"""An API server's own counts: audit events, the writes that it was asked for, and bytes.

The audit log has only the writes that carry timestamps; `apiserver_request_total` has every request
once it has been answered, so its counts are exact and cost one request before and after the load.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from bigfleet.kube.client import CONNECTION_ERRORS, ApiError, KubeClient, is_transient

_LOG = logging.getLogger(__name__)

_AUDIT_EVENTS = re.compile(rb"^apiserver_audit_event_total (\S+)$", re.MULTILINE)
_REQUESTS = re.compile(rb"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
# Bodies of writes, answers to reads, and events of watches; headers and compression are left out.
_BYTES = re.compile(
    rb"^apiserver_(?:request_body_size_bytes|response_sizes|watch_events_sizes)_sum\{.*\} (\S+)$",
    re.MULTILINE,
)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_VERBS = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "APPLY": "apply",
    "DELETE": "delete",
    "DELETECOLLECTION": "deletecollection",
}
# Metrics are megabytes, and a server may still be busy at the end of a large run.
_TIMEOUT_SECONDS = 60.0
_RETRY_INTERVAL_SECONDS = 1.0


@dataclass(frozen=True)
class WriteCount:
    """How many writes of a kind succeeded, and how many did not."""

    granted: int = 0
    rejected: int = 0

    def __add__(self, other: WriteCount) -> WriteCount:
        return WriteCount(self.granted + other.granted, self.rejected + other.rejected)

    def __sub__(self, other: WriteCount) -> WriteCount:
        return WriteCount(self.granted - other.granted, self.rejected - other.rejected)


@dataclass(frozen=True)
class ServerCounts:
    """Since the server started: audit events, one line each, writes by verb and resource, and the
    bytes of the objects that were written, read and watched.

    `audit_events` is None if the server keeps no audit log. All clients count.
    """

    audit_events: int | None
    writes: Mapping[str, WriteCount]
    bytes_moved: int = 0

    def writes_since(self, before: ServerCounts) -> dict[str, WriteCount]:
        """The writes after `before`, without kinds that had none."""
        since = {
            what: count - before.writes.get(what, WriteCount())
            for what, count in self.writes.items()
        }
        return {what: count for what, count in since.items() if count != WriteCount()}


async def server_counts(
    client: KubeClient, timeout_seconds: float = _TIMEOUT_SECONDS
) -> ServerCounts | None:
    """Read the counts; None if the server does not respond.

    Retries a busy server until a timeout, but not one that is gone.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            text = await _metrics(client)
    except (ApiError, *CONNECTION_ERRORS):
        return None
    events = _AUDIT_EVENTS.search(text)
    moved = sum(float(value) for value in _BYTES.findall(text))
    written = round(float(events[1])) if events else None
    return ServerCounts(written, _writes(text), round(moved))


def _writes(metrics: bytes) -> dict[str, WriteCount]:
    found: defaultdict[str, WriteCount] = defaultdict(WriteCount)
    for text, value in _REQUESTS.findall(metrics):
        labels = dict(_LABEL.findall(text.decode()))
        if labels.get("verb") in _VERBS and labels.get("resource"):
            subresource = f"/{labels['subresource']}" if labels.get("subresource") else ""
            what = f"{_VERBS[labels['verb']]} {labels['resource']}{subresource}"
            number = round(float(value))
            granted = labels.get("code", "").startswith("2")
            found[what] += WriteCount(number, 0) if granted else WriteCount(0, number)
    return dict(found)


async def _metrics(client: KubeClient) -> bytes:
    while True:
        try:
            return await client.get("/metrics")
        except (ApiError, TimeoutError) as error:
            if not is_transient(error):
                raise
            _LOG.info("cannot read the API server's metrics: %s", str(error) or repr(error))
        await asyncio.sleep(_RETRY_INTERVAL_SECONDS)
