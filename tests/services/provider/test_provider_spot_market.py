"""Interruptions of spot machines."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean

import pytest

from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.model.machine import CapacityType
from bigfleet.services.provider.spot_market import SPOT_INTERRUPTED, seconds_until_interruption
from tests.support.providers import (
    SlowHost,
    machine,
    provider,
    settings,
    subject_of,
    write_inventory,
)


def test_the_mean_life_is_that_of_the_hourly_probability() -> None:
    """At 30 % an hour a machine lives 1 / -ln(0.7) hours on average: 2.8."""
    spot = [machine(f"m-{n}", capacity_type=CapacityType.SPOT, interruption_probability=0.3)
            for n in range(4000)]  # fmt: skip
    hours = [
        seconds_until_interruption(each, seed=1, operation=1, market_hours_per_second=1.0)
        for each in spot
    ]
    assert fmean(hours) == pytest.approx(2.80, rel=0.06)


@pytest.mark.parametrize(
    ("capacity_type", "probability", "hours_per_second"),
    [
        (CapacityType.ON_DEMAND, 0.5, 1.0),
        (CapacityType.SPOT, 0.0, 1.0),
        (CapacityType.SPOT, 0.5, 0.0),
    ],
)
def test_other_machines_are_never_interrupted(
    capacity_type: CapacityType, probability: float, hours_per_second: float
) -> None:
    """Only spot machines with a probability are interrupted, and only with market time."""
    stays = machine("m-0", capacity_type=capacity_type, interruption_probability=probability)
    assert math.isinf(seconds_until_interruption(stays, 1, 1, hours_per_second))


def test_equal_seeds_lose_machines_at_equal_times() -> None:
    """A run with spot losses can be repeated."""
    spot = machine("m-0", capacity_type=CapacityType.SPOT, interruption_probability=0.3)
    assert seconds_until_interruption(spot, 7, 3, 1.0) == seconds_until_interruption(
        spot, 7, 3, 1.0
    )
    assert seconds_until_interruption(spot, 7, 3, 1.0) != seconds_until_interruption(
        spot, 7, 4, 1.0
    )


async def test_a_lost_machine_is_switched_off_and_reported_as_failed(tmp_path: Path) -> None:
    """Its host stops first; then the provider says FAILED and why."""
    spot = {"capacity_type": "SPOT", "interruption_probability": 0.5}
    write_inventory(tmp_path / "inventory.jsonl", {"id": "m-0", **spot}, {"id": "m-1", **spot})
    host = SlowHost()
    host.ready.set()
    given = settings(tmp_path, spot_market_hours_per_second=100.0)
    async with provider(given, host) as channel:
        subject = subject_of(channel)
        shard = subject.fenced_client()
        await shard.create("m-0")
        await subject.wait_for_state("m-0", wire.IDLE)
        await shard.configure("m-0", "c", b"blob", {})
        lost = await subject.wait_for_state("m-0", wire.FAILED)
        assert lost.last_error == SPOT_INTERRUPTED
        assert host.powered_off == ["m-0"]
