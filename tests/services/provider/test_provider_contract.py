"""The built-in provider conforms to the provider contract, however fast it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from bigfleet.conformance.check import Check
from bigfleet.conformance.rules import CHECKS
from bigfleet.services.provider.config import Latencies, Latency
from tests.support.providers import provider, settings, subject_of

# The other rules need a cluster that can withhold readiness, or a process: see tests/conformance.
ELSEWHERE = ("crash/", "latency/", "configured/", "list/in-progress")
HERE = [check for check in CHECKS if not check.name.startswith(ELSEWHERE)]


@pytest.mark.parametrize("check", HERE, ids=lambda check: check.name)
async def test_the_contract_holds_when_everything_happens_at_once(
    check: Check, tmp_path: Path
) -> None:
    """Every rule of the contract, with transitions that take no time."""
    async with provider(settings(tmp_path)) as channel:
        await check.probe(subject_of(channel))


@pytest.mark.parametrize("check", HERE, ids=lambda check: check.name)
async def test_the_contract_holds_when_transitions_take_time(check: Check, tmp_path: Path) -> None:
    """Every rule of the contract, with transitions under way while it is checked."""
    slow = Latency(median_seconds=0.05, p99_seconds=0.1)
    given = settings(tmp_path, latencies=Latencies(slow, slow, slow, slow))
    async with provider(given) as channel:
        await check.probe(subject_of(channel))
