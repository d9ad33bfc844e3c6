"""Ceilings: limits on what one cluster may claim of the fleet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

HIGHEST_PRIORITY = 2**31 - 1
_MICROS = 1_000_000


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The limits of one cluster; infinite for none.

    The priority of its needs is limited to `priority`, and acquisitions to `machines` and to
    `dollars_per_hour` for all of them together.
    """

    priority: int = HIGHEST_PRIORITY
    machines: float = math.inf
    dollars_per_hour: float = math.inf

    @property
    def bounds_acquisition(self) -> bool:
        """Whether it limits acquisitions, and not the priority alone."""
        return math.isfinite(self.machines) or math.isfinite(self.dollars_per_hour)


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Ceilings by cluster name, and the `default` of all other clusters."""

    default: Ceiling = Ceiling()
    clusters: Mapping[str, Ceiling] = field(default_factory=dict)

    def of(self, cluster: str) -> Ceiling:
        """The ceiling of a cluster."""
        return self.clusters.get(cluster, self.default)


def micros(dollars: float) -> int:
    """Micro-dollars, in which prices are summed: integer sums do not depend on their order."""
    return round(dollars * _MICROS)
