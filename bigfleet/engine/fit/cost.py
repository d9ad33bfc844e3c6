"""Effective cost of machines for a need, and candidate tiers.

effective cost = price + interruption probability x interruption penalty, in dollars per hour.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.snapshot import Flags, Floats, Ints
from bigfleet.model import penalty

# Candidate tiers, the lowest first: plain machines, those with scarce resources that the need does
# not request, then those of infinite effective cost, which any finite cost beats.
SCARCE, INFINITE = 1, 2
TIERS = SCARCE + INFINITE + 1


def effective_cost(price: Floats, interruption_probability: Floats, bucket: int) -> Floats:
    """Effective costs in dollars per hour."""
    # 0 x infinity is NaN: a PINNED need accepts machines that are never interrupted at their price.
    if bucket == penalty.PINNED:
        return np.where(interruption_probability > 0, np.inf, price)
    return price + interruption_probability * penalty.dollars(bucket)


def tiers(costs: Floats, has_other_scarce: Flags) -> Ints:
    """The candidate tier of each flavour [F]."""
    tier = np.where(np.isinf(costs), INFINITE, 0).astype(np.int32)
    tier[has_other_scarce] += SCARCE
    return tier


def costs_of(columns: FlavourColumns, bucket: int) -> Floats:
    """The effective cost of each flavour [F] for a need with this interruption bucket."""
    return columns.remember(
        ("cost", bucket),
        lambda: effective_cost(columns.price, columns.interruption_probability, bucket),
    )
