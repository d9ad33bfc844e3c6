"""The number of audit events by an API server's own metrics."""

from __future__ import annotations

import asyncio
import logging
import re

from bigfleet.kube.client import CONNECTION_ERRORS, ApiError, KubeClient, is_transient

_LOG = logging.getLogger(__name__)

_COUNTER = re.compile(rb"^apiserver_audit_event_total (\S+)$", re.MULTILINE)
# Metrics are megabytes, and a server may still be busy at the end of a large run.
_TIMEOUT_SECONDS = 60.0
_RETRY_INTERVAL_SECONDS = 1.0


async def events_written(
    client: KubeClient, timeout_seconds: float = _TIMEOUT_SECONDS
) -> int | None:
    """Audit events, one line each, since the server started; None if it does not respond.

    Retries a busy server until a timeout, but not one that is gone.
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
            _LOG.info("cannot read the API server's metrics: %s", str(error) or repr(error))
        await asyncio.sleep(_RETRY_INTERVAL_SECONDS)
