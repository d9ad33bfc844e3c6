"""Observes a fleet for as long as a difference lasts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bigfleet.audit.compare import compare
from bigfleet.audit.differences import Findings, settle
from bigfleet.audit.observations import Observation

# Most of what is on its way has arrived after a part of the pause, and then the rest is not needed.
_EARLY_SHARE = 0.25


async def follow(
    observe: Callable[[], Awaitable[Observation]],
    wait: Callable[[float], Awaitable[None]],
    pause_seconds: float,
) -> tuple[list[Observation], Findings]:
    """All observations, and what the first and the last say alike; no more are made once nothing
    is left of what differed at first.
    """
    seen = [await observe()]
    differences = compare(seen[0])
    findings = settle(differences, differences)
    for share in (_EARLY_SHARE, 1 - _EARLY_SHARE):
        if not findings.lasting:
            break
        await wait(share * pause_seconds)
        seen.append(await observe())
        findings = settle(differences, compare(seen[-1]))
    return seen, findings
