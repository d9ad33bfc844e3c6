"""What one cluster may claim of the fleet, however much its needs ask for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

HIGHEST_PRIORITY = 2**31 - 1
_MICROS = 1_000_000


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A cluster's needs count as having at most this `priority`. Nothing is acquired for it beyond
    so many `machines`, or beyond `dollars_per_hour` for all of them together; infinite for no
    ceiling.
    """

    priority: int = HIGHEST_PRIORITY
    machines: float = math.inf
    dollars_per_hour: float = math.inf

    @property
    def bounds_acquisition(self) -> bool:
        """Whether it bounds what a cluster may hold, and not its priority alone."""
        return math.isfinite(self.machines) or math.isfinite(self.dollars_per_hour)


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The ceilings of some clusters by name, and the `default` of all others."""

    default: Ceiling = Ceiling()
    clusters: Mapping[str, Ceiling] = field(default_factory=dict)

    def of(self, cluster: str) -> Ceiling:
        """That of one cluster."""
        return self.clusters.get(cluster, self.default)


def micros(dollars: float) -> int:
    """Millionths of a dollar, in which prices are summed: no sum depends on its order."""
    return round(dollars * _MICROS)
