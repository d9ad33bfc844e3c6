"""The oracle's phase 2: needs that are still short take machines from others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from bigfleet.engine.snapshot import NONE
from bigfleet.model import penalty
from tests.engine.oracle.acquiring import (
    Offer,
    choose,
    free_machines,
    give_back,
    group_machines,
    order,
)
from tests.engine.oracle.assignment import (
    acquire_in_domain,
    place_again,
    place_gang,
    preempt_in_domain,
    reserved_domain,
    serve,
    serve_gang,
    take_first_fit,
    unplace_gang,
)
from tests.engine.oracle.cycle import Cycle, NeedView
from tests.engine.oracle.domains import (
    PREEMPTIBLE,
    SURPLUS,
    DomainChoice,
    best_domain,
    label_keys,
    take_constrained,
)
from tests.engine.oracle.objects import ACQUIRABLE_STATES, Machine, S

_DRAINING, _SURPLUS, _COMING, _VICTIM, _PINNED = range(5)


class TakenMachines(NamedTuple):
    """A machine that a need takes, whether that evicts no pods, and the gap in priority."""

    machine: Machine
    non_disruptive: bool
    gap: int


class Candidate(NamedTuple):
    """A machine that a need may take; the lowest `rank` first."""

    rank: tuple[float, ...]
    tie_break: int
    taken: TakenMachines


def grace(gap: int) -> int:
    """The grace period in seconds."""
    bands = ((900_000, 10), (500_000, 30), (100_000, 120))
    return next((seconds for above, seconds in bands if gap > above), 600)


class PreemptionPhase:
    """`going` are the machines reclaimed in any case; `taken` is the result by need."""

    def __init__(self, cycle: Cycle, going: Sequence[Machine]) -> None:
        self._cycle, self._going = cycle, going
        self._open = cycle.demand.reported - cycle.demand.unreachable
        acquired = cycle.acquired.items()
        self._dirty_clusters = {
            cycle.needs[index].cluster for index, machines in acquired if machines
        }
        self._dirty_clusters |= {machine.cluster for machine in going}
        self._all_dirty = False
        self.taken: dict[int, list[TakenMachines]] = {}

    def run(self) -> None:
        """Serve all needs in the demand's order; no pods are evicted for additional needs."""
        needs = self._cycle.needs
        if any(need.lacks for need in needs):
            self._drop_idle_reservations()
            for need in needs:
                passes = need.index in self._cycle.not_acquiring or need.kind == "additional"
                if need.lacks and not passes:
                    earlier = [size for other in needs[: need.index] for size in other.sizes]
                    left = {size: size.left for size in earlier}
                    self._serve(need, self._preempt_for)
                    if need.kind == "gang":
                        self._serve_losers({s.need for s in earlier if s.left > left[s]})

    def _serve(self, need: NeedView, how: Callable[[NeedView], None]) -> None:
        before = list(self._cycle.cluster_of(need).slots)
        how(need)
        if any(slot not in before for slot in self._cycle.cluster_of(need).slots):
            self._dirty_clusters.add(need.cluster)

    def _serve_losers(self, indices: set[int]) -> None:
        """Serve again those whose turn it was, and whose machines a gang has given back or taken;
        gangs, which would do the same to others, are only placed.
        """
        for index in sorted(indices):
            need = self._cycle.needs[index]
            self._serve(need, partial(place_again if need.kind == "gang" else serve, self._cycle))

    def _drop_idle_reservations(self) -> None:
        for machine in self._cycle.machines:
            waits = machine.reserved_for != NONE or machine.arrived_for != NONE
            if machine.state in ACQUIRABLE_STATES and waits:
                machine.reserved_for = machine.arrived_for = NONE
                self._all_dirty = self._all_dirty or not machine.is_unavailable

    def _preempt_for(self, need: NeedView) -> None:
        cycle = self._cycle
        if self._all_dirty or need.cluster in self._dirty_clusters:
            serve(cycle, need)
        if not need.lacks:
            return
        found = self._candidates(need)
        if need.kind == "gang":
            self._complete_gang(need, found)
        elif need.kind == "constrained" and found:
            offers = [offer for _, offer in self._offers(need, found, label_keys(need))]
            self._note(need, found, take_constrained(cycle, need, offers))
        elif found:
            chosen = choose(cycle, need, (), [offer for _, offer in self._offers(need, found)])
            order(cycle, need, chosen)
            self._note(need, found, [one.machine for one in chosen])

    def _complete_gang(self, need: NeedView, found: Sequence[Candidate]) -> None:
        """Let a gang take machines if that completes it, in any domain."""
        cycle = self._cycle
        had = cycle.acquired.get(need.index, [])
        unplace_gang(cycle, need)
        if had:
            self._dirty_clusters.add(need.cluster)
        offers = self._offers(need, found, (str(need.profile.same_key),))
        choice = best_domain(cycle, need, offers, reserved_domain(cycle, need))
        if not choice.whole or not self._complete(need, found, choice, offers):
            self._all_dirty = self._all_dirty or need.index in cycle.reserved
            cycle.reserved.pop(need.index, None)
            serve_gang(cycle, need)
        now = cycle.acquired.get(need.index, [])
        self._all_dirty = self._all_dirty or any(machine not in now for machine in had)

    def _complete(
        self,
        need: NeedView,
        found: Sequence[Candidate],
        choice: DomainChoice,
        offers: Sequence[tuple[int, Offer]],
    ) -> bool:
        """Acquire and take what the gang lacks; False if it stays incomplete."""
        cycle = self._cycle
        place_gang(cycle, need, choice)
        cycle.at_ceiling.discard(need.index)
        acquire_in_domain(cycle, need)
        taken = preempt_in_domain(cycle, need, [offer for _, offer in offers])
        if need.lacks:
            give_back(cycle, need, taken)
            if need.index in cycle.at_ceiling:
                cycle.not_acquiring.add(need.index)
                return False
            free = free_machines(cycle, need, (str(need.profile.same_key),))
            taken = take_first_fit(cycle, need, choice, [*free, *(offer for _, offer in offers)])
        self._note(need, found, taken)
        return not need.lacks

    def _offers(
        self, need: NeedView, found: Sequence[Candidate], keys: Sequence[str] = ()
    ) -> list[tuple[int, Offer]]:
        """The candidates of each rank, with their source for a gang."""
        offers = []
        for rank in sorted({each.rank for each in found}):
            its = [each.taken.machine for each in found if each.rank == rank]
            source = SURPLUS if rank[0] < _VICTIM else PREEMPTIBLE
            offers.append((source, group_machines(self._cycle, need, its, keys)))
        return offers

    def _note(
        self, need: NeedView, found: Sequence[Candidate], machines: Sequence[Machine]
    ) -> None:
        """Remove the pods of other needs from these machines."""
        taken = {id(each.taken.machine): each.taken for each in found}
        if machines:
            self.taken[need.index] = [taken[id(machine)] for machine in machines]
        for machine in machines:
            for cluster in self._cycle.clusters:
                mine = [slot for slot in cluster.slots if slot.machine is machine]
                for slot in [slot for slot in mine if slot.orderer != need.index]:
                    slot.clear()
                    cluster.slots.remove(slot)
                if machine in cluster.headroom_pool:
                    cluster.headroom_pool.remove(machine)
                if machine.supply_cluster == cluster.number:
                    self._dirty_clusters.add(cluster.number)

    def _candidates(self, need: NeedView) -> list[Candidate]:
        found = [self._candidate(need, machine) for machine in self._cycle.machines]
        open_ = [each for each in found if each is not None]
        return sorted(open_, key=lambda each: (each.rank, each.tie_break))

    def _candidate(self, need: NeedView, machine: Machine) -> Candidate | None:
        """The machine as a candidate of the need, None if it may not take it."""
        cycle, drains = self._cycle, machine.state is S.DRAINING
        works = machine.state is S.CONFIGURED and machine.cluster in self._open
        if machine.is_unavailable or not (drains or works) or not need.accepts(machine.flavour):
            return None
        kept = drains and machine.reserved_for != NONE
        index = machine.reserved_for if kept else cycle.first_user(machine)
        holder = cycle.needs[index] if index != NONE else None
        if self._is_own(need, machine) or not self._is_open(need, machine, holder):
            return None
        if works and holder is None and math.isinf(machine.disruption_cost):
            return None
        served = holder.priority if holder else machine.last_priority
        gap = 0 if drains and holder is None else max(need.priority - served, 0)
        kind, score = _SURPLUS, 0.0
        if drains:
            kind, score = (_DRAINING, 0.0) if holder is None else (_COMING, float(gap))
        elif holder is not None:
            pinned = holder.profile.interruption_bucket == penalty.PINNED
            kind, score = _PINNED if pinned else _VICTIM, self._score(holder, gap)
        if need.profile.never_preempts and kind >= _COMING:
            return None
        rank = kind, need.tier(machine.flavour), machine.last_claimed_by != need.index, -score
        return Candidate(rank, machine.tie_break, TakenMachines(machine, kind < _VICTIM, gap))

    def _is_own(self, need: NeedView, machine: Machine) -> bool:
        """Whether phase 1 has used it for the need's cluster."""
        if machine.state is S.DRAINING:
            reserving_need = machine.reserved_for
            outranked = (
                reserving_need != NONE
                and self._cycle.needs[reserving_need].priority < need.priority
            )
            return machine.supply_cluster == need.cluster and not outranked
        return machine.cluster == need.cluster

    def _is_open(self, need: NeedView, machine: Machine, holder: NeedView | None) -> bool:
        """Whether its priority lets the need take it."""
        drains = machine.state is S.DRAINING
        if holder is None:
            promised = not drains and machine.last_claimed_by == need.index
            lower_priority = machine.last_priority < need.priority
            return drains or machine in self._going or promised or lower_priority
        if drains and holder.priority <= need.priority:
            given = grace(max(holder.priority - machine.last_priority, 0))
            if given > grace(max(need.priority - machine.last_priority, 0)):
                return False
        both = need.kind == "gang" and holder.profile.same_key is not None
        yields = both and holder.priority == need.priority and holder.lacks
        return holder.priority < need.priority or yields

    def _score(self, holder: NeedView, gap: int) -> float:
        weights = self._cycle.settings.victim_weights
        score = gap * weights.priority_gap + weights.drain / grace(gap)
        for bucket, weight in (
            (holder.profile.interruption_bucket, weights.interruption),
            (holder.profile.reclamation_bucket, weights.reclamation),
        ):
            dollars = penalty.dollars(bucket)
            score += 0.0 if math.isinf(dollars) else weight / max(dollars, 0.01)
        return score
