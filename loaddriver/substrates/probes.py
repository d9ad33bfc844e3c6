"""One question to an HTTP server: does it answer 200 now?"""

from __future__ import annotations

import aiohttp

_PROBE_SECONDS = 5.0


async def answers(session: aiohttp.ClientSession, url: str) -> bool:
    """Say whether a GET of this URL succeeds; nobody there is a no, not an error."""
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(_PROBE_SECONDS)) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False
