"""Machines fail at the rate that was asked for, and come back."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.simulation.runtime.loop import run
from loaddriver.profile.loading import PROFILES
from loaddriver.wire.provider import InstantProvider, inventory, lose_machines, machine_of
from loaddriver.wire.settings import load_wire_profile


def fleet() -> InstantProvider:
    provider = InstantProvider(map(machine_of, inventory(load_wire_profile("fleet-4k", PROFILES))))
    for machine in provider.machines.values():
        machine.state, machine.cluster = wire.CONFIGURED, "c1"
    return provider


def failed(provider: InstantProvider) -> int:
    return sum(machine.state == wire.FAILED for machine in provider.machines.values())


async def after(seconds: float, provider: InstantProvider, *, begun: bool = True) -> None:
    begin = asyncio.Event()
    if begun:
        begin.set()
    losing = asyncio.create_task(lose_machines(provider, 0.1, 1, begin))
    await asyncio.sleep(seconds)
    losing.cancel()
    with suppress(asyncio.CancelledError):
        await losing


def test_nothing_fails_before_it_is_asked_for() -> None:
    provider = fleet()
    run(lambda: after(120, provider, begun=False))
    assert failed(provider) == 0


def test_a_share_of_the_machines_in_service_fails_each_minute() -> None:
    provider = fleet()
    run(lambda: after(61, provider))
    share = failed(provider) / len(provider.machines)
    assert 0.08 < share < 0.11


def test_they_are_idle_a_minute_later_unless_they_were_deleted() -> None:
    provider = fleet()
    run(lambda: after(600, provider))
    states = [machine.state for machine in provider.machines.values()]
    assert states.count(wire.FAILED) + states.count(wire.IDLE) + states.count(
        wire.CONFIGURED
    ) == len(states)
    assert states.count(wire.IDLE) > len(states) / 2
    assert all(not m.cluster for m in provider.machines.values() if m.state == wire.IDLE)


async def test_changes_since_a_revision_are_listed_once_each_in_order() -> None:
    provider = fleet()
    first, second, *_ = provider.machines.values()
    seen = await provider.List(wire.ListFilter(max_results=1), None)  # type: ignore[arg-type]
    for machine in (first, second, first):
        provider.change(machine)
    changed = await provider.List(wire.ListFilter(since_revision=seen.revision), None)  # type: ignore[arg-type]
    assert [machine.id for machine in changed.machines] == [second.id, first.id]
    none = await provider.List(wire.ListFilter(since_revision=changed.revision), None)  # type: ignore[arg-type]
    assert not none.machines
