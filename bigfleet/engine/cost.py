"""What a machine costs a need, and in which order machines are acquired for it.

effective cost = price + interruption probability x interruption penalty, in dollars per hour.
Acquisition goes by effective cost per useful unit: a machine twice as dear that serves four times
as much of what is missing is the cheaper one. Machines of equal use compare by effective cost
alone.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.snapshot import Flags, Floats, Ints, Longs
from bigfleet.model import penalty
from bigfleet.model.need import Need
from bigfleet.model.resources import CPU, MEMORY, PODS

_COMMON = frozenset({CPU, MEMORY, PODS, "ephemeral-storage", "storage"})

# Reluctance, least first: plain machines, ones with unasked scarce resources, then those whose
# cost is infinite. More reluctance than this does not exist.
SCARCE, INFINITE = 1, 2
RELUCTANCES = SCARCE + INFINITE + 1


def is_scarce(resource: str) -> bool:
    """Whether `resource` is an extended one (a GPU, say) rather than what every machine has."""
    return resource not in _COMMON and not resource.startswith("hugepages-")


def effective_cost(price: Floats, interruption_probability: Floats, bucket: int) -> Floats:
    """Dollars per hour. For PINNED, anything that may be interrupted costs infinitely much."""
    if bucket == penalty.PINNED:
        return np.where(interruption_probability > 0, np.inf, price)
    return price + interruption_probability * penalty.dollars(bucket)


def cost_per_useful_unit(costs: Floats, units: Longs, missing: Longs) -> Floats:
    """Cost per share of `missing` that a machine serves, that share taken in the resource it
    serves least and never above one; infinite where it serves nothing of some resource.

    Single precision, so that prices in proportion to size are equal in spite of rounding.
    """
    open_ = missing > 0
    shares = np.minimum(units[:, open_], missing[open_]).astype(np.float64) / missing[open_]
    share = shares.min(axis=1)
    per_unit = np.full(len(costs), np.inf)
    with np.errstate(over="ignore"):
        np.divide(costs, share, out=per_unit, where=share > 0)
        return per_unit.astype(np.float32).astype(np.float64)


class CostBook:
    """Costs of all flavours, remembered for one decision."""

    def __init__(self, columns: FlavourColumns) -> None:
        self._columns = columns
        self._scarce = [name for name in columns.resources if is_scarce(name)]
        self._costs: dict[int, Floats] = {}
        self._reluctance: dict[tuple[int, tuple[str, ...]], Ints] = {}

    def costs(self, need: Need) -> Floats:
        """Effective cost of each flavour for `need`."""
        bucket = need.profile.interruption_bucket
        if bucket not in self._costs:
            self._costs[bucket] = effective_cost(
                self._columns.price, self._columns.interruption_probability, bucket
            )
        return self._costs[bucket]

    def reluctance(self, need: Need) -> Ints:
        """How late each flavour comes into question for `need`: 0 at once, more is later.

        An infinite cost is worse than any finite one, whatever else speaks for the machine.
        """
        key = need.profile.interruption_bucket, self._unasked(need)
        if key not in self._reluctance:
            reluctance = np.where(np.isinf(self.costs(need)), INFINITE, 0).astype(np.int32)
            reluctance[self._has_any(key[1])] += SCARCE
            self._reluctance[key] = reluctance
        return self._reluctance[key]

    def _unasked(self, need: Need) -> tuple[str, ...]:
        """The scarce resources that `need` does not ask for."""
        return tuple(
            name
            for name in self._scarce
            if need.aggregate.get(name, 0) <= 0 and need.largest.get(name, 0) <= 0
        )

    def _has_any(self, resources: tuple[str, ...]) -> Flags:
        flags = np.zeros(len(self._columns), np.bool_)
        for name in resources:
            flags |= self._columns.allocatable(name) > 0
        return flags
