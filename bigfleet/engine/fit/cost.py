"""What a machine costs a need, and in which order machines come into question for it.

effective cost = price + interruption probability x interruption penalty, in dollars per hour.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.snapshot import Flags, Floats, Ints
from bigfleet.model import penalty

# Tiers of candidates, the first best: plain machines, ones with scarce resources that the need did
# not ask for, then those whose effective cost is infinite. An infinite cost is worse than any
# finite one, whatever else speaks for the machine.
SCARCE, INFINITE = 1, 2
TIERS = SCARCE + INFINITE + 1


def effective_cost(price: Floats, interruption_probability: Floats, bucket: int) -> Floats:
    """Dollars per hour. For PINNED, anything that may be interrupted costs infinitely much."""
    if bucket == penalty.PINNED:
        return np.where(interruption_probability > 0, np.inf, price)
    return price + interruption_probability * penalty.dollars(bucket)


def tiers(costs: Floats, has_other_scarce: Flags) -> Ints:
    """The tier of each flavour for a need to which they cost `costs`."""
    tier = np.where(np.isinf(costs), INFINITE, 0).astype(np.int32)
    tier[has_other_scarce] += SCARCE
    return tier


class Costs:
    """Effective costs of all flavours by penalty bucket, remembered for one decision."""

    def __init__(self, columns: FlavourColumns) -> None:
        self._columns = columns
        self._known: dict[int, Floats] = {}

    def of(self, bucket: int) -> Floats:
        """The effective cost of each flavour for a need with this interruption bucket."""
        if bucket not in self._known:
            self._known[bucket] = effective_cost(
                self._columns.price, self._columns.interruption_probability, bucket
            )
        return self._known[bucket]
