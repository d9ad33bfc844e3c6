"""How long the spot market leaves a machine to us: a pure, seeded model."""

from __future__ import annotations

import math
import random

from bigfleet.model.machine import CapacityType, Machine

SPOT_INTERRUPTED = "its spot capacity was interrupted"


def seconds_until_interruption(
    machine: Machine, seed: int, operation: int, market_hours_per_second: float
) -> float:
    """Exponential with the machine's own interruption probability per hour of market time.

    Infinite for a machine that nobody takes back, or when the market stands still. It counts from
    the machine's boot, or from a restart of the provider, which so prolongs what it had left.
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
