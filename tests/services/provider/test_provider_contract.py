"""The provider that comes with BigFleet keeps the contract of all providers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from provider_contract import CHECKS, Subject
from provider_rig import provider, settings

from bigfleet.services.provider import Latencies, Latency

Check = Callable[[Subject], Awaitable[None]]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_contract_holds_when_everything_happens_at_once(
    check: Check, tmp_path: Path
) -> None:
    """Every rule of the contract, with transitions that take no time."""
    async with provider(settings(tmp_path)) as channel:
        await check(Subject(channel, lambda machine: machine.encode()))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_contract_holds_when_transitions_take_time(check: Check, tmp_path: Path) -> None:
    """Every rule of the contract, with transitions under way while it is checked."""
    slow = Latency(median_seconds=0.05, p99_seconds=0.1)
    given = settings(tmp_path, latencies=Latencies(slow, slow, slow, slow))
    async with provider(given) as channel:
        await check(Subject(channel, lambda machine: machine.encode()))
