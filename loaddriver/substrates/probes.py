"""HTTP probes: does a server return 200?"""

from __future__ import annotations

import aiohttp

_PROBE_SECONDS = 5.0


async def answers(session: aiohttp.ClientSession, url: str) -> bool:
    """Whether a GET of this URL succeeds; a failed connection is False, not an error."""
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(_PROBE_SECONDS)) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False
