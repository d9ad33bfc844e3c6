"""CONFIGURED means that pods can be scheduled."""

from __future__ import annotations

import asyncio
import time

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.conformance.check import check
from bigfleet.conformance.expectations import RuleViolation, expect
from bigfleet.conformance.subject import Subject

# Long enough to detect a provider that waits for a fixed time.
_HELD_SECONDS = 1.5
_POLL_INTERVAL_SECONDS = 0.02


@check(
    "configured/only-when-ready",
    "A machine is CONFIGURED only once its Node is Ready in the cluster",
)
async def configured_only_when_ready(subject: Subject) -> str:
    """Its Node exists and is kept from being Ready; then it becomes Ready."""
    shard = subject.fenced_client()
    async with subject.idle(shard) as machine:
        async with subject.cluster.readiness_withheld():
            # Not awaited: another check detects a provider that blocks.
            ordered = asyncio.create_task(subject.configure(shard, machine))
            joining = asyncio.create_task(subject.cluster.joined(machine, subject.bounds.state))
            try:
                await _never_configured(subject, machine, joining)
            except RuleViolation:
                joining.cancel()
                raise
            finally:
                await asyncio.wait([joining])
        await asyncio.wait([ordered])
        ordered.result()
        await subject.wait_for_state(machine, wire.CONFIGURED)
    return f"not CONFIGURED in {_HELD_SECONDS:g} s without Ready, and then with it"


async def _never_configured(subject: Subject, machine: str, joining: asyncio.Task[bool]) -> None:
    """RuleViolation if it is CONFIGURED before its Node exists or shortly after."""
    until = float("inf")
    while time.monotonic() < until:
        state = (await subject.get(machine)).state
        if state == wire.CONFIGURED:
            here = "it exists, not Ready" if joining.done() else "there is none"
            raise RuleViolation(f"CONFIGURED while its Node is not Ready: {here}")
        if joining.done() and until == float("inf"):
            seen = f"no Node of {machine} came to the cluster within {subject.bounds.state:g} s"
            expect(joining.result(), seen)
            until = time.monotonic() + _HELD_SECONDS
        await asyncio.sleep(_POLL_INTERVAL_SECONDS)
