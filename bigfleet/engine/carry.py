"""What a decision hands to the next one about needs and clusters; about machines,
`Decision.claimed_by` and `Decision.headroom` do.

Plain records without references into a fleet or a demand, so that they can be kept and compared.
Losing them is safe: ages and clocks begin anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from bigfleet.model.need import NeedKey


@dataclass(frozen=True, slots=True)
class Reservation:
    """`need` does not have all of its machines yet, and those promised to it are kept for it.

    `domain` is where a gang gathers; "" for a need without a domain.
    """

    need: NeedKey
    domain: str
    since_seconds: float


@dataclass(frozen=True, slots=True)
class Shortage:
    """`need` has been short for `cycles` decisions in a row, the last one included."""

    need: NeedKey
    cycles: int
    since_seconds: float


@dataclass(frozen=True, slots=True)
class ClusterMemory:
    """What happened to a cluster's machines.

    `coming_seconds` is when one was last on its way to it. At least `spare` of them have been to
    spare since `spare_since_seconds`. `acquired_seconds` and `reclaimed_seconds` are when it last
    acquired one and last gave back one that it had to spare, None if it has not been seen to;
    `reclaimed_demand` was its demand then, in largest machines. Each time that it acquired one soon
    after giving one back, for no more demand, `hold_factor`, by which it holds on to spare machines
    longer, has doubled; `factor_seconds` is when that changed.
    """

    cluster: str
    spare: int = 0
    spare_since_seconds: float = 0.0
    acquired_seconds: float | None = None
    reclaimed_seconds: float | None = None
    reclaimed_demand: float = 0.0
    hold_factor: int = 1
    factor_seconds: float = 0.0
    coming_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Carry:
    """Needs in their order, clusters by name; empty at the start of a shard."""

    reservations: tuple[Reservation, ...] = ()
    shortages: tuple[Shortage, ...] = ()
    clusters: tuple[ClusterMemory, ...] = ()
