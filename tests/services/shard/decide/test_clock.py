"""The host's clock may be set at any time: what a shard holds is not measured by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bigfleet.adapters.clock.manual import ManualClock
from bigfleet.adapters.clock.system import SystemClock
from bigfleet.adapters.provider.memory import MemoryProvider
from tests.support.shard_rig import cycles, machine, shard, states
from tests.support.waiting import eventually


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_clock_that_is_set_neither_ends_a_hold_nor_prolongs_it(
    tmp_path: Path, hours: int
) -> None:
    """An idle machine stays for its ten minutes, whatever the time of day is by then."""
    clock, provider = ManualClock(), MemoryProvider([machine("m-1")])
    async with shard(provider, tmp_path, clock) as rig:
        await cycles(rig, 2)
        clock.step(hours * 3600)
        clock.advance(500)
        await cycles(rig, 3)
        assert provider.orders == []
        clock.advance(101)
        await eventually(lambda: states(provider.orders) == [("DELETE", "m-1")])


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_clock_that_is_set_neither_ends_a_rest_nor_makes_a_cluster_absent(
    tmp_path: Path, hours: int
) -> None:
    """Its operator left a moment ago, and is not suspended for that."""
    clock = ManualClock()
    async with shard(MemoryProvider([machine("m-1")]), tmp_path, clock) as rig:
        await (await rig.operator()).leave()
        suspensions = rig.shard.cycle.suspensions
        suspensions.clusters(["east"], clock.monotonic_seconds())
        clock.step(hours * 3600)
        await cycles(rig, 2)
        assert suspensions.clusters(["east"], clock.monotonic_seconds()) == frozenset()
        clock.advance(600)
        assert suspensions.clusters(["east"], clock.monotonic_seconds()) == {"east"}


def test_the_steady_clock_begins_with_the_time_of_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """So what it measures can be shown to people, until the time of day is set."""
    clock = SystemClock()
    assert abs(clock.monotonic_seconds() - clock.unix_seconds()) < 1
    before = clock.monotonic_seconds()
    monkeypatch.setattr("bigfleet.adapters.clock.system.time.time", lambda: 0.0)
    assert clock.unix_seconds() == 0.0
    assert 0 <= clock.monotonic_seconds() - before < 1
