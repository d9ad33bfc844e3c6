"""The oracle's packing of a cluster's pods."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from bigfleet.engine.snapshot import NONE
from bigfleet.model.labels import HOSTNAME_LABEL
from tests.engine.oracle.cycle import Cycle, NeedView
from tests.engine.oracle.matching import may_stay, meets_affinity
from tests.engine.oracle.objects import Cluster, PodSize, S, Slot

_EMPTY_PENALTY = 0.1
_MAX_BATCHES = 256
_UNLIMITED = 2**40
# Later than any machine without a scarce resource that the need did not ask for.
_SCARCE_STEPS = 4096
# A share in steps, so that what is left without a place is summed exactly.
_SHARE_STEPS = 2**20


class ScoringStrategy(NamedTuple):
    """Weights of CPU and memory utilization, and the penalty of a machine without pods."""

    cpu: float
    memory: float
    empty_penalty: float


BALANCED = ScoringStrategy(1.0, 1.0, 0.0)


def consolidating(cluster: Cluster) -> ScoringStrategy:
    """Consolidate pods on few machines, in the ratio of the cluster's requests."""
    return ScoringStrategy(*cluster.factors, _EMPTY_PENALTY)


def _used_part(slot: Slot, size: PodSize, name: str) -> float:
    room = slot.room.get(name, 0)
    if room == 0:
        return 0.0
    return 1 - float(slot.free(name) - size.amounts.get(name, 0)) / float(room)


def score(need: NeedView, slot: Slot, size: PodSize, strategy: ScoringStrategy) -> tuple[int, bool]:
    """The slot with the lowest score takes the next pod."""
    counted_last_time = slot.machine.last_claimed_by == need.index
    deviation = abs(
        _used_part(slot, size, "cpu") * strategy.cpu
        - _used_part(slot, size, "memory") * strategy.memory
    )
    extra = 0.0 if slot.pods or counted_last_time else strategy.empty_penalty
    steps = math.floor((deviation + extra) * 256)
    if need.has_other_scarce(slot.machine.flavour):
        steps += _SCARCE_STEPS
    return steps, not counted_last_time


def pack(
    cycle: Cycle, sizes: Sequence[PodSize], strategy: ScoringStrategy, only_own: bool = False
) -> None:
    """Place plain pods, one size after the other; with `only_own` on machines that their needs
    claimed in the last decision.
    """
    for size in sizes:
        need = cycle.needs[size.need]
        batch = max(1, size.left // _MAX_BATCHES)
        while size.left:
            open_slots = [
                slot
                for slot in cycle.slots_for(need)
                if slot.fits(size) > 0 and (not only_own or _is_own(slot, size))
            ]
            if not open_slots:
                break
            slot = min(open_slots, key=lambda slot: score(need, slot, size, strategy))
            slot.put(size, min(batch, size.left, slot.fits(size)))


def _is_own(slot: Slot, size: PodSize) -> bool:
    return slot.machine.last_claimed_by == size.need


def place_plain(cycle: Cycle, cluster: Cluster, sizes: Sequence[PodSize]) -> None:
    """Place plain pods of one priority: without the machines that lower priorities claimed last,
    and the rest with them; or all of them at once, if that leaves less.
    """
    lower = [slot for slot in cluster.slots if any(_is_below(cycle, slot, size) for size in sizes)]
    if not lower:
        _place_best(cycle, cluster, sizes)
        return
    start, everywhere = remember(cluster, sizes), cluster.slots
    cluster.slots = [slot for slot in cluster.slots if slot not in lower]
    _place_best(cycle, cluster, sizes)
    cluster.slots = everywhere
    _place_best(cycle, cluster, sizes)
    if least := left_over(sizes):
        rest_last = remember(cluster, sizes)
        restore(start)
        _place_best(cycle, cluster, sizes)
        if left_over(sizes) >= least:
            restore(rest_last)


def _is_below(cycle: Cycle, slot: Slot, size: PodSize) -> bool:
    """Whether a need of a lower priority claimed the machine in the last decision."""
    claimant = slot.machine.last_claimed_by
    return claimant != NONE and cycle.needs[claimant].priority < cycle.needs[size.need].priority


def _place_best(cycle: Cycle, cluster: Cluster, sizes: Sequence[PodSize]) -> None:
    """Consolidate and, if some pods stay unplaced, balance, and give each need its own machines
    first; what leaves least is kept, of equal results the first.
    """
    before = remember(cluster, sizes)
    pack(cycle, sizes, consolidating(cluster))
    if not any(size.left for size in sizes):
        return
    best, least = remember(cluster, sizes), left_over(sizes)
    for own_first in (False, True):
        short = [size for size in sizes if size.left]
        if own_first and not any(_claimed_some(cycle, size) for size in short):
            continue
        restore(before)
        if own_first:
            pack(cycle, sizes, consolidating(cluster), only_own=True)
        pack(cycle, sizes, consolidating(cluster) if own_first else BALANCED)
        if left_over(sizes) < least:
            best, least = remember(cluster, sizes), left_over(sizes)
        else:
            restore(best)


def _claimed_some(cycle: Cycle, size: PodSize) -> bool:
    """Whether its need claimed a machine of its cluster that it may use."""
    need = cycle.needs[size.need]
    slots = cycle.cluster_of(need).slots
    return any(_is_own(slot, size) and slot.max_priority >= need.priority for slot in slots)


def left_over(sizes: Sequence[PodSize]) -> int:
    """The sum of the shares of unplaced pods."""
    return sum(size.left * round(size.share * _SHARE_STEPS) for size in sizes)


def plain_order(cycle: Cycle, cluster: int, priority: int) -> list[PodSize]:
    """All plain pods of a cluster and priority that some machine could hold, in the order in which
    they are counted.
    """
    flavours = {id(machine.flavour): machine.flavour for machine in cycle.machines}.values()
    keyed = []
    for need in cycle.needs:
        if need.cluster == cluster and need.priority == priority and need.kind == "plain":
            choice = sum(need.accepts(flavour) for flavour in flavours)
            for place, size in enumerate(need.sizes):
                if not size.impossible:
                    keyed.append(((choice, -size.share, need.index, place), size))
    return [size for _, size in sorted(keyed, key=lambda pair: pair[0])]


@dataclass
class Memory:
    """A checkpoint for `restore`."""

    cluster: Cluster
    slots: list[tuple[Slot, dict[PodSize, int]]]
    left: list[tuple[PodSize, int]]


def remember(cluster: Cluster, sizes: Iterable[PodSize]) -> Memory:
    """Record a cluster's slots with their pods, and how many pods of `sizes` are unplaced."""
    slots = [(slot, dict(slot.pods)) for slot in cluster.slots]
    return Memory(cluster, slots, [(size, size.left) for size in sizes])


def restore(memory: Memory) -> None:
    """Return to the state at `remember`."""
    memory.cluster.slots = [slot for slot, _ in memory.slots]
    for slot, pods in memory.slots:
        slot.pods = dict(pods)
    for size, left in memory.left:
        size.left = left


class Term(NamedTuple):
    """One condition between the pods of a need: with `most` (anti-affinity), at most so many in a
    domain of `key`; else at most `max_skew` more than the least of the domains in `counting`, which
    is none while there are fewer than `min_domains`.
    """

    key: str
    max_skew: int | None
    most: int | None
    min_domains: int
    counting: frozenset[object]

    def allows(self, pods: dict[object, int], domain: object) -> bool:
        """Whether one more pod may go to a domain, while domains have so many `pods`."""
        here = pods.get(domain, 0)
        if self.most is not None:
            return here < self.most
        assert self.max_skew is not None
        return here < self.least(pods, domain) + self.max_skew

    def least(self, pods: dict[object, int], entering: object = None) -> int:
        """The global minimum: the fewest pods of any domain that counts, entered ones included."""
        counting = self.counting if entering is None else self.counting | {entering}
        if entering is not None and entering not in self.counting:
            return 0
        if len(counting) < self.min_domains:
            return 0
        return min((pods.get(domain, 0) for domain in counting), default=0)


def domain_of(slot: Slot, key: str) -> object:
    """Each machine is a domain of its own by hostname; None outside all domains."""
    return slot if key == HOSTNAME_LABEL else slot.machine.flavour.labels.get(key)


def terms_of(cycle: Cycle, need: NeedView, entered: frozenset[object] = frozenset()) -> list[Term]:
    """The need's terms with the domains that its cluster's machines make now; for the first one
    those that are about to be `entered`, too.
    """
    profile, terms = need.profile, []
    slots = [s for s in cycle.cluster_of(need).slots if s.max_priority >= need.priority]

    def domains(key: str, affinity: bool, taints: bool) -> frozenset[object]:
        found = set()
        for slot in slots:
            flavour = slot.machine.flavour
            fits = meets_affinity(profile.requirements, profile.alternatives, flavour.labels)
            stays = may_stay(profile.tolerations, flavour.taints)
            if (fits or not affinity) and (stays or not taints):
                found.add(domain_of(slot, key))
        return frozenset(found - {None})

    for term in need.terms:
        counting = domains(
            term.topology_key, not term.ignores_node_affinity, term.honors_node_taints
        )
        terms.append(Term(term.topology_key, term.max_skew, None, term.min_domains, counting))
    for key in need.apart:
        terms.append(Term(key, None, 1, 1, domains(key, True, False)))
    return [terms[0]._replace(counting=terms[0].counting | entered), *terms[1:]]


def pods_by_domain(cycle: Cycle, need: NeedView, key: str) -> dict[object, int]:
    """How many of the need's pods each domain has."""
    pods: dict[object, int] = {}
    for slot in cycle.cluster_of(need).slots:
        its = sum(number for size, number in slot.pods.items() if size.need == need.index)
        if its:
            domain = domain_of(slot, key)
            pods[domain] = pods.get(domain, 0) + its
    return pods


def place_constrained(
    cycle: Cycle, need: NeedView, entered: frozenset[object] = frozenset()
) -> None:
    """Pod by pod into the domains with the fewest of the need's pods, there where it balances;
    from the largest size again, as long as small pods may have made room for large ones. First
    without the machines of needs that are placed later, then with those of its own priority, then
    with all.
    """
    terms, slots = terms_of(cycle, need, entered), cycle.cluster_of(need).slots
    later = [slot for slot in slots if _is_claimed_by_later(cycle, need, slot)]
    lower = [slot for slot in later if _claimant(cycle, slot).priority < need.priority]
    for withheld in (later, lower, []):
        with _without(withheld):
            _spread(cycle, need, terms)
    _place_running(cycle, need)


@contextmanager
def _without(withheld: Sequence[Slot]) -> Iterator[None]:
    """Keep all needs from these slots meanwhile."""
    before = [(slot, slot.max_priority) for slot in withheld]
    for slot in withheld:
        slot.max_priority = -_UNLIMITED
    yield
    for slot, max_priority in before:
        slot.max_priority = max_priority


def _is_claimed_by_later(cycle: Cycle, need: NeedView, slot: Slot) -> bool:
    """Whether a need that is placed after this one claimed the machine in the last decision."""
    if slot.machine.last_claimed_by == NONE:
        return False
    other = _claimant(cycle, slot)
    if other.priority != need.priority:
        return other.priority < need.priority
    return other.kind == "plain" or (other.kind == "constrained" and other.index > need.index)


def _claimant(cycle: Cycle, slot: Slot) -> NeedView:
    return cycle.needs[slot.machine.last_claimed_by]


def _place_running(cycle: Cycle, need: NeedView) -> None:
    """Place what runs already and has no place, on machines in service, however it spreads."""
    slots = cycle.cluster_of(need).slots
    placed = sum(n for slot in slots for size, n in slot.pods.items() if size.need == need.index)
    known, held_back = max(0, cycle.running.get(need.index, 0) - placed), []
    for size in need.sizes:
        now = min(size.left, known)
        held_back.append((size, size.left - now))
        size.left, known = now, known - now
    if need.lacks:
        now = sum(size.left for size in need.sizes)
        terms = [
            term if term.max_skew is None else term._replace(max_skew=_UNLIMITED)
            for term in terms_of(cycle, need)
        ]
        serving = [
            slot
            for slot in slots
            if slot.machine.state is S.CONFIGURED and slot.machine.cluster == need.cluster
        ]
        with _without([slot for slot in slots if slot not in serving]):
            _spread(cycle, need, terms)
        if sum(size.left for size in need.sizes) < now:
            cycle.beyond_skew.add(need.index)
    for size, pods in held_back:
        size.left += pods


def _spread(cycle: Cycle, need: NeedView, terms: Sequence[Term]) -> None:
    before = -1
    while before != (before := sum(size.left for size in need.sizes)):
        for size in need.sizes:
            while size.left and (slot := _next_slot(cycle, need, size, terms)):
                slot.put(size, 1)


def _next_slot(cycle: Cycle, need: NeedView, size: PodSize, terms: Sequence[Term]) -> Slot | None:
    strategy = consolidating(cycle.cluster_of(need))
    counts = [pods_by_domain(cycle, need, term.key) for term in terms]
    best: tuple[tuple[int, tuple[int, bool]], Slot] | None = None
    for slot in cycle.slots_for(need):
        domains = [domain_of(slot, term.key) for term in terms]
        together = list(zip(terms, counts, domains, strict=True))
        if slot.fits(size) and all(term.allows(pods, at) for term, pods, at in together):
            there = sum(pods.get(domain, 0) for _, pods, domain in together)
            place = there, score(need, slot, size, strategy)
            if best is None or place < best[0]:
                best = place, slot
    return best[1] if best else None
