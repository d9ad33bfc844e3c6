"""State that a decision hands to the next one about needs and clusters. (About machines, that is
`Decision.claimed_by` and `Decision.headroom`.)

Plain records without indices into a fleet or a demand, so that they can be stored and compared.
Losing them is safe: ages and timers restart.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bigfleet.model.need import NeedKey

_PERIODS = 4
_NOISE = 0.01


@dataclass(frozen=True, slots=True)
class Reservation:
    """Machines are kept for `need` until it has all of them; in `domain` for a gang, else ""."""

    need: NeedKey
    domain: str
    since_seconds: float


@dataclass(frozen=True, slots=True)
class ShortfallAge:
    """`need` has been short for `cycles` consecutive decisions, the last one included."""

    need: NeedKey
    cycles: int
    since_seconds: float


@dataclass(frozen=True, slots=True)
class SpreadPods:
    """So many pods of `need`, which has hard topology spread, can run on the `machines` in service
    that it accepts: they were counted there, or had been before. At most `most` are on each.
    """

    need: NeedKey
    pods: int
    most: int
    machines: int


@dataclass(frozen=True, slots=True, order=True)
class SurplusSince:
    """At least this many machines have been surplus since then."""

    machines: int
    since_seconds: float


@dataclass(frozen=True, slots=True, order=True)
class Reacquired:
    """Machines acquired for the needs with this fingerprint soon after a reclaim, although demand
    had hardly grown: as many surplus machines that such a need can use are held longer.
    """

    fingerprint: str
    machines: int
    #: multiplies their reclaim hold; at least 2
    hold_factor: int
    #: when `hold_factor` last changed
    since_seconds: float


@dataclass(frozen=True, slots=True)
class ClusterMemory:
    """The recent history of a cluster's machines; times are None if not seen yet."""

    cluster: str
    #: increasing numbers of surplus machines and since when; the last is the number now
    surplus: tuple[SurplusSince, ...] = ()
    #: when its surplus machines were last looked for
    searched_seconds: float | None = None
    #: when it last acquired a machine
    acquired_seconds: float | None = None
    #: when it last acquired a machine while none was surplus
    grown_seconds: float | None = None
    #: the capacity that it had then for a unit of demand, and what pods have requested for
    #: themselves since
    capacity_ratio: float | None = None
    #: when a surplus machine was last reclaimed
    reclaimed_seconds: float | None = None
    #: its demand at that time, in largest machines
    reclaimed_demand: float = 0.0
    #: by fingerprint
    reacquired: tuple[Reacquired, ...] = ()
    #: its highest demand in periods of equal length, in largest machines: the current period first,
    #: then up to three before it
    peaks: tuple[float, ...] = ()
    #: when the current period began
    period_seconds: float | None = None

    def is_search_due(
        self, interval_seconds: float, holds_seconds: Sequence[float], now_seconds: float
    ) -> bool:
        """Whether to look for surplus machines: once in each interval, at a moment of the cluster's
        own, when one of the holds has ended for some machines, and in each decision for as long as
        machines go.
        """
        searched, reclaimed = self.searched_seconds, self.reclaimed_seconds
        if searched is None or not interval_seconds:
            return True
        if reclaimed is not None and reclaimed >= searched:
            return True
        for since in (each.since_seconds for each in self.surplus):
            if any(searched < since + hold <= now_seconds for hold in holds_seconds):
                return True
        # Else all clusters that were first asked at once would be searched by the same decisions.
        phase = zlib.crc32(self.cluster.encode()) / 2**32
        before, present = (
            math.floor(t / interval_seconds + phase) for t in (searched, now_seconds)
        )
        return present > before

    def held(self, seconds: float, now_seconds: float) -> int:
        """How many machines have been surplus for at least `seconds`."""
        held = (s.machines for s in self.surplus if now_seconds - s.since_seconds >= seconds)
        return max(held, default=0)

    def spare(self, capacity: int, demand: float) -> float:
        """How much of `capacity` is beyond what it needed for such a demand when it last grew; at
        most 0 if that is noise.
        """
        if self.capacity_ratio is None:
            return math.inf
        return capacity * (1 - _NOISE) - self.capacity_ratio * demand

    def with_capacity(
        self, capacity: int, additional: int, demand: float, *, grows: bool
    ) -> ClusterMemory:
        """A copy that has acquired machines, for `additional` capacity those that pods requested
        for themselves; `grows` if none was surplus.
        """
        if not demand:
            return self
        if grows:
            return replace(self, capacity_ratio=capacity / demand)
        if self.capacity_ratio is None:
            return self
        return replace(self, capacity_ratio=self.capacity_ratio + additional / demand)

    def is_growing(self, demand: float) -> bool:
        """Whether demand, as in `grows`, is higher than before, and has not fallen since."""
        return self.grows(demand) and demand >= max(self.peaks) * (1 - _NOISE)

    def has_fallen_since_it_grew(self, fell_seconds: float | None) -> bool:
        """Whether its demand, which fell last at `fell_seconds`, has since it last grew: then
        machines with pods may be surplus.
        """
        grown = self.grown_seconds
        return fell_seconds is not None and (grown is None or fell_seconds >= grown)

    def grows(self, demand: float) -> bool:
        """Whether demand is higher than in all of the earlier periods, by more than noise.

        The current period and the one before it are too recent to show growth. Highest values do
        not show it when pods are replaced: for a moment there are fewer of them.
        """
        earlier = self.peaks[2:]
        return bool(earlier) and demand > max(earlier) * (1 + _NOISE)

    def with_demand(
        self, demand: float, length_seconds: float, now_seconds: float
    ) -> ClusterMemory:
        """A copy that has seen this demand, in periods of `length_seconds`."""
        if not self.peaks and not demand:
            return self
        began = self.period_seconds
        ended = 1 if began is None else math.floor((now_seconds - began) / length_seconds)
        if ended > 0:
            peaks = (*[demand] * min(ended, _PERIODS), *self.peaks)[:_PERIODS]
            return replace(self, peaks=peaks, period_seconds=now_seconds)
        if demand <= self.peaks[0]:
            return self
        return replace(self, peaks=(demand, *self.peaks[1:]))

    def with_surplus(self, machines: int, reclaimed: int, now_seconds: float) -> ClusterMemory:
        """A copy in which so many surplus machines are found, after `reclaimed` others are
        reclaimed.
        """
        surplus: list[SurplusSince] = []
        for each in self.surplus:
            kept_on = min(each.machines - reclaimed, machines)
            if kept_on > (surplus[-1].machines if surplus else 0):
                surplus.append(SurplusSince(kept_on, each.since_seconds))
        if machines > (surplus[-1].machines if surplus else 0):
            surplus.append(SurplusSince(machines, now_seconds))
        return replace(self, surplus=tuple(surplus), searched_seconds=now_seconds)

    def without_search(self, reclaimed: int) -> ClusterMemory:
        """A copy that knows of as many surplus machines as before, without those `reclaimed`."""
        known = [s.machines - reclaimed for s in self.surplus]
        kept = zip(known, self.surplus, strict=True)
        surplus = tuple(SurplusSince(k, s.since_seconds) for k, s in kept if k > 0)
        return replace(self, surplus=surplus)


@dataclass(frozen=True, slots=True)
class CycleMemory:
    """Needs in their order, clusters by name; empty when a shard starts."""

    reservations: tuple[Reservation, ...] = ()
    shortfall_ages: tuple[ShortfallAge, ...] = ()
    clusters: tuple[ClusterMemory, ...] = ()
    spread_pods: tuple[SpreadPods, ...] = ()
