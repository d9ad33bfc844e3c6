"""How long an API server's audit log must be, as the server itself counts."""

from __future__ import annotations

import asyncio
import logging
import re

from bigfleet.kube.client import CONNECTION_ERRORS, ApiError, KubeClient, is_transient

_LOG = logging.getLogger(__name__)

_COUNTER = re.compile(rb"^apiserver_audit_event_total (\S+)$", re.MULTILINE)
# Its metrics are megabytes, and at the end of a large run a server may still be busy for a while.
_TIMEOUT_SECONDS = 60.0
_RETRY_INTERVAL_SECONDS = 1.0


async def events_written(
    client: KubeClient, timeout_seconds: float = _TIMEOUT_SECONDS
) -> int | None:
    """Audit events since the server began, each of them a line; None if it does not say.

    One that is busy is asked again until the patience is at its end; one that is gone is not.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            found = _COUNTER.search(await _metrics(client))
    except (ApiError, *CONNECTION_ERRORS):
        return None
    return round(float(found[1])) if found else None


async def _metrics(client: KubeClient) -> bytes:
    while True:
        try:
            return await client.get("/metrics")
        except (ApiError, TimeoutError) as error:
            if not is_transient(error):
                raise
            _LOG.info("the API server's metrics are not to be had: %s", str(error) or repr(error))
        await asyncio.sleep(_RETRY_INTERVAL_SECONDS)
