"""What a decision tells the next one about needs; about machines, `Decision.claimed_by` does.

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
class Carry:
    """In the order of needs; empty at the start of a shard."""

    reservations: tuple[Reservation, ...] = ()
    shortages: tuple[Shortage, ...] = ()
