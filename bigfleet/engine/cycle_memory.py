"""What a decision hands to the next one about needs and clusters; about machines,
`Decision.claimed_by` and `Decision.headroom` do.

Plain records without references into a fleet or a demand, so that they can be kept and compared.
Losing them is safe: ages and clocks begin anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
class ShortfallAge:
    """`need` has been short for `cycles` decisions in a row, the last one included."""

    need: NeedKey
    cycles: int
    since_seconds: float


@dataclass(frozen=True, slots=True, order=True)
class SurplusSince:
    """At least so many machines have been to spare since then."""

    machines: int
    since_seconds: float


@dataclass(frozen=True, slots=True)
class ClusterMemory:
    """What happened to a cluster's machines.

    `incoming_seconds` is when one was last on its way to it. `surplus` is how many it has had to
    spare for how long: the more, the later; the last is how many it has now. `acquired_seconds`,
    `grown_seconds` and `reclaimed_seconds` are when it last acquired one, acquired one with nothing
    to spare, and gave back one that it had to spare, None if it has not been seen to;
    `reclaimed_demand` was its demand then, in largest machines. Each time that it acquired one soon
    after giving one back, for no more demand, `hold_factor`, by which it holds on to spare machines
    longer, has doubled; `factor_seconds` is when that changed.
    """

    cluster: str
    surplus: tuple[SurplusSince, ...] = ()
    acquired_seconds: float | None = None
    grown_seconds: float | None = None
    reclaimed_seconds: float | None = None
    reclaimed_demand: float = 0.0
    hold_factor: int = 1
    factor_seconds: float = 0.0
    incoming_seconds: float | None = None

    @property
    def surplus_now(self) -> int:
        """How many machines it has to spare."""
        return self.surplus[-1].machines if self.surplus else 0

    def held(self, seconds: float, now_seconds: float) -> int:
        """How many of them it has had to spare for at least so long."""
        held = (s.machines for s in self.surplus if now_seconds - s.since_seconds >= seconds)
        return max(held, default=0)

    def with_surplus(self, machines: int, reclaimed: int, now_seconds: float) -> ClusterMemory:
        """The same once so many are to spare, beside those that it gives back now."""
        surplus: list[SurplusSince] = []
        for each in self.surplus:
            kept_on = min(each.machines - reclaimed, machines)
            if kept_on > (surplus[-1].machines if surplus else 0):
                surplus.append(SurplusSince(kept_on, each.since_seconds))
        if machines > (surplus[-1].machines if surplus else 0):
            surplus.append(SurplusSince(machines, now_seconds))
        return replace(self, surplus=tuple(surplus))


@dataclass(frozen=True, slots=True)
class CycleMemory:
    """Needs in their order, clusters by name; empty at the start of a shard."""

    reservations: tuple[Reservation, ...] = ()
    shortfall_ages: tuple[ShortfallAge, ...] = ()
    clusters: tuple[ClusterMemory, ...] = ()
