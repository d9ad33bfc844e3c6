"""Spot interruptions: a pure, seeded model."""

from __future__ import annotations

import math
import random

from bigfleet.model.machine import CapacityType, Machine

SPOT_INTERRUPTED = "its spot capacity was interrupted"


def seconds_until_interruption(
    machine: Machine, seed: int, operation: int, market_hours_per_second: float
) -> float:
    """Exponential with the machine's own interruption probability per hour of market time.

    Infinite for a machine that is never interrupted, or without market time. It counts from the
    machine's boot, or from a restart of the provider, which thus extends the remaining time.
    """
    probability = machine.interruption_probability
    if machine.capacity_type is not CapacityType.SPOT or not probability:
        return math.inf
    if not market_hours_per_second:
        return math.inf
    if probability == 1:
        return 0.0
    rng = random.Random(f"{seed}/{machine.id}/{operation}/loss")
    return rng.expovariate(-math.log1p(-probability)) / market_hours_per_second
