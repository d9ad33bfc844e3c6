"""The oracle's second phase: who still lacks something takes what others have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from bigfleet.engine.snapshot import NONE
from bigfleet.model import penalty
from tests.engine.oracle.acquiring import Offer, choose, give_back, kinds_of, order
from tests.engine.oracle.cycle import Cycle, View
from tests.engine.oracle.domains import (
    SPARED,
    TAKEN,
    Home,
    best_domain,
    label_keys,
    take_constrained,
)
from tests.engine.oracle.objects import FREE, Machine, S
from tests.engine.oracle.serving import (
    acquire_inside,
    reserved_domain,
    serve,
    serve_gang,
    settle,
    take_inside,
    withdraw,
)

_DRAINS, _EXCESS, _COMING, _VICTIM, _PINNED = range(5)


class Taken(NamedTuple):
    """A machine that somebody takes; is anybody evicted for that, and how much lower is it?"""

    machine: Machine
    gentle: bool
    gap: int


class Candidate(NamedTuple):
    """A machine that a need may take; the least `rank` first."""

    rank: tuple[float, ...]
    tie_break: int
    taken: Taken


def grace(gap: int) -> int:
    """In how many seconds the pods must leave."""
    bands = ((900_000, 10), (500_000, 30), (100_000, 120))
    return next((seconds for above, seconds in bands if gap > above), 600)


class Taking:
    """`going` are the machines that are given back in any case; `taken` is the outcome by need."""

    def __init__(self, cycle: Cycle, going: Sequence[Machine]) -> None:
        self._cycle, self._going = cycle, going
        self._open = cycle.demand.reported - cycle.demand.unreachable
        acquired = cycle.acquired.items()
        self._dirty = {cycle.needs[index].cluster for index, machines in acquired if machines}
        self._dirty |= {machine.cluster for machine in going}
        self._stirred = False
        self.taken: dict[int, list[Taken]] = {}

    def run(self) -> None:
        """In the order of the demand; nobody is evicted for additional pods."""
        needs = self._cycle.needs
        if any(need.lacks for need in needs):
            self._stop_keeping()
            for need in needs:
                passes = need.index in self._cycle.expired or need.kind == "additional"
                if need.lacks and not passes:
                    before = list(self._cycle.cluster_of(need).slots)
                    self._help(need)
                    if any(slot not in before for slot in self._cycle.cluster_of(need).slots):
                        self._dirty.add(need.cluster)

    def _stop_keeping(self) -> None:
        for machine in self._cycle.machines:
            if machine.state in FREE and machine.kept_for != NONE:
                machine.kept_for = NONE
                self._stirred = self._stirred or not machine.is_gone

    def _help(self, need: View) -> None:
        cycle = self._cycle
        if self._stirred or need.cluster in self._dirty:
            serve(cycle, need)
        if not need.lacks:
            return
        found = self._candidates(need)
        if need.kind == "gang":
            self._complete(need, found)
        elif need.kind == "constrained" and found:
            offers = [offer for _, offer in self._offers(need, found, label_keys(need))]
            self._note(need, found, take_constrained(cycle, need, offers))
        elif found:
            chosen = choose(cycle, need, (), [offer for _, offer in self._offers(need, found)])
            order(cycle, need, chosen)
            self._note(need, found, [one.machine for one in chosen])

    def _complete(self, need: View, found: Sequence[Candidate]) -> None:
        """A gang takes only what makes it whole; for that it may go to another domain."""
        cycle = self._cycle
        had = cycle.acquired.get(need.index, [])
        withdraw(cycle, need)
        if had:
            self._dirty.add(need.cluster)
        offers = self._offers(need, found, (str(need.profile.same_key),))
        home = best_domain(cycle, need, offers, reserved_domain(cycle, need))
        if not home.whole or not self._make_whole(need, found, home, offers):
            self._stirred = self._stirred or need.index in cycle.reserved
            cycle.reserved.pop(need.index, None)
            serve_gang(cycle, need)
        now = cycle.acquired.get(need.index, [])
        self._stirred = self._stirred or any(machine not in now for machine in had)

    def _make_whole(
        self,
        need: View,
        found: Sequence[Candidate],
        home: Home,
        offers: Sequence[tuple[int, Offer]],
    ) -> bool:
        """Acquire and take what the gang lacks; whether its cluster's ceiling allows all of it."""
        cycle = self._cycle
        settle(cycle, need, home)
        cycle.at_ceiling.discard(need.index)
        acquire_inside(cycle, need)
        taken = take_inside(cycle, need, [offer for _, offer in offers])
        if need.lacks and need.index in cycle.at_ceiling:
            give_back(cycle, need, taken)
            cycle.expired.add(need.index)
            return False
        self._note(need, found, taken)
        return True

    def _offers(
        self, need: View, found: Sequence[Candidate], keys: Sequence[str] = ()
    ) -> list[tuple[int, Offer]]:
        """The candidates of each rank, with the way in which a gang comes by them."""
        offers = []
        for rank in sorted({each.rank for each in found}):
            its = [each.taken.machine for each in found if each.rank == rank]
            way = SPARED if rank[0] < _VICTIM else TAKEN
            offers.append((way, kinds_of(self._cycle, need, its, keys)))
        return offers

    def _note(self, need: View, found: Sequence[Candidate], machines: Sequence[Machine]) -> None:
        """Who had pods on these machines has none there any more."""
        taken = {id(each.taken.machine): each.taken for each in found}
        if machines:
            self.taken[need.index] = [taken[id(machine)] for machine in machines]
        for machine in machines:
            for cluster in self._cycle.clusters:
                mine = [slot for slot in cluster.slots if slot.machine is machine]
                for slot in [slot for slot in mine if slot.orderer != need.index]:
                    slot.clear()
                    cluster.slots.remove(slot)
                if machine in cluster.reserve:
                    cluster.reserve.remove(machine)
                if machine.home == cluster.number:
                    self._dirty.add(cluster.number)

    def _candidates(self, need: View) -> list[Candidate]:
        found = [self._candidate(need, machine) for machine in self._cycle.machines]
        open_ = [each for each in found if each is not None]
        return sorted(open_, key=lambda each: (each.rank, each.tie_break))

    def _candidate(self, need: View, machine: Machine) -> Candidate | None:
        """What the machine is to the need, if it may take it."""
        cycle, drains = self._cycle, machine.state is S.DRAINING
        works = machine.state is S.CONFIGURED and machine.cluster in self._open
        if machine.is_gone or not (drains or works) or not need.accepts(machine.flavour):
            return None
        kept = drains and machine.kept_for != NONE
        index = machine.kept_for if kept else cycle.holder(machine)
        holder = cycle.needs[index] if index != NONE else None
        if self._is_own(need, machine) or not self._is_open(need, machine, holder):
            return None
        if works and holder is None and math.isinf(machine.release_cost):
            return None
        served = holder.priority if holder else machine.last_priority
        gap = 0 if drains and holder is None else max(need.priority - served, 0)
        kind, score = _EXCESS, 0.0
        if drains:
            kind, score = (_DRAINS, 0.0) if holder is None else (_COMING, float(gap))
        elif holder is not None:
            pinned = holder.profile.interruption_bucket == penalty.PINNED
            kind, score = _PINNED if pinned else _VICTIM, self._score(holder, gap)
        if need.profile.never_preempts and kind >= _COMING:
            return None
        rank = kind, need.tier(machine.flavour), machine.wanted_by != need.index, -score
        return Candidate(rank, machine.tie_break, Taken(machine, kind < _VICTIM, gap))

    def _is_own(self, need: View, machine: Machine) -> bool:
        """Whether phase 1 has counted it for the need's cluster."""
        if machine.state is S.DRAINING:
            keeper = machine.kept_for
            outranked = keeper != NONE and self._cycle.needs[keeper].priority < need.priority
            return machine.home == need.cluster and not outranked
        return machine.cluster == need.cluster

    def _is_open(self, need: View, machine: Machine, holder: View | None) -> bool:
        """Whether its priority lets the need take it."""
        drains = machine.state is S.DRAINING
        if holder is None:
            promised = not drains and machine.wanted_by == need.index
            lower = machine.last_priority < need.priority
            return drains or machine in self._going or promised or lower
        if drains and holder.priority <= need.priority:
            given = grace(max(holder.priority - machine.last_priority, 0))
            if given > grace(max(need.priority - machine.last_priority, 0)):
                return False
        both = need.kind == "gang" and holder.profile.same_key is not None
        gives_way = both and holder.priority == need.priority and holder.lacks
        return holder.priority < need.priority or gives_way

    def _score(self, holder: View, gap: int) -> float:
        weights = self._cycle.settings.victim_weights
        score = gap * weights.priority_gap + weights.drain / grace(gap)
        for bucket, weight in (
            (holder.profile.interruption_bucket, weights.interruption),
            (holder.profile.reclamation_bucket, weights.reclamation),
        ):
            dollars = penalty.dollars(bucket)
            score += 0.0 if math.isinf(dollars) else weight / max(dollars, 0.01)
        return score
