"""How long an API server's audit log must be, as the server itself counts."""

from __future__ import annotations

import asyncio
import re

from bigfleet.api.kube.client import NO_ANSWER, ApiError, KubeClient

_COUNTER = re.compile(rb"^apiserver_audit_event_total (\S+)$", re.MULTILINE)
_ANSWER_SECONDS = 10.0


async def events_written(client: KubeClient) -> int | None:
    """Audit events since the server began, each of them a line; None if it does not say."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            found = _COUNTER.search(await client.get("/metrics"))
    except (ApiError, *NO_ANSWER):
        return None
    return round(float(found[1])) if found else None
