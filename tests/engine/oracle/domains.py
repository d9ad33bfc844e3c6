"""The oracle's topology domains for constrained needs and gangs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bigfleet.model.labels import HOSTNAME_LABEL
from tests.engine.oracle.acquiring import (
    LEAST_PARTS,
    Domain,
    Offer,
    choose,
    first_servable,
    free_machines,
    give_back,
    growth_part,
    order_machines,
    unused_orders,
)
from tests.engine.oracle.cycle import Cycle, NeedView
from tests.engine.oracle.objects import Machine, PodSize
from tests.engine.oracle.packing import Term, place_constrained, pods_by_domain, terms_of

# Where a gang's machine comes from.
OWN, CLUSTER, ACQUIRABLE, SURPLUS, PREEMPTIBLE = range(5)
_STEPS = 2**20


def label_keys(need: NeedView) -> tuple[str, ...]:
    """The topology keys of the need's terms that are labels of machines."""
    keys = [*(term.topology_key for term in need.terms), *need.apart]
    return tuple(key for key in dict.fromkeys(keys) if key != HOSTNAME_LABEL)


def acquire_constrained(cycle: Cycle, need: NeedView, among: Sequence[Machine]) -> None:
    """Acquire machines `among` these, one by one, in the domains with the fewest pods."""
    offers = list(free_machines(cycle, need, label_keys(need), among))
    its = cycle.acquired.setdefault(need.index, [])
    its.extend(take_constrained(cycle, need, offers))


def take_constrained(cycle: Cycle, need: NeedView, offers: Sequence[Offer]) -> list[Machine]:
    """Order machines of `offers` for the need as long as that places pods."""
    taken: list[Machine] = []
    worth = _worth_entering(cycle, need, offers)
    entered = frozenset[object](domain for (domain,) in worth or ())
    left = sum(size.left for size in need.sizes)
    while need.lacks:
        before = sum(size.left for size in need.sizes)
        terms = terms_of(cycle, need, entered)
        one = _next_machine(cycle, need, offers, worth, terms, left)
        if one is None:
            break
        place_constrained(cycle, need, entered)
        if one in unused_orders(cycle, need):
            give_back(cycle, need, [one])
        else:
            taken.append(one)
        if sum(size.left for size in need.sizes) == before:
            break
    place_constrained(cycle, need)
    return taken


def _next_machine(
    cycle: Cycle,
    need: NeedView,
    offers: Sequence[Offer],
    worth: set[Domain] | None,
    terms: Sequence[Term],
    left_at_first: int,
) -> Machine | None:
    keys = label_keys(need)
    domains = {kind.domain for offer in offers for kind in offer}
    domains = {domain for domain in domains if worth is None or domain in worth}
    open_domains = []
    for domain in domains:
        values = dict(zip(keys, domain, strict=True))
        there = _pods_in(cycle, need, terms, values)
        if there is not None:
            open_domains.append((there, domain))
    for there, domain in sorted(open_domains):
        most = _share_of(cycle, need, terms, there, len(domains))
        inside = [[kind for kind in offer if kind.domain == domain] for offer in offers]
        first = first_servable(cycle, need, inside)
        chosen = choose(
            cycle,
            need,
            (),
            inside,
            first=first,
            pods_at_most=most,
            one_machine=True,
            expected=_expected(cycle, need, len(domains), left_at_first),
        )
        if chosen:
            order_machines(cycle, need, [one.machine for one in chosen])
            return chosen[0].machine
    return None


def _expected(cycle: Cycle, need: NeedView, domains: int, left: int) -> dict[PodSize, int] | None:
    """A domain's part of the pods by which the cluster will grow, or a machine's if each takes one
    of the `left` pods; None if no machine should be sized for them.
    """
    if need.one_a_machine:
        return growth_part(cycle, need, max(LEAST_PARTS, left))
    if any(term.topology_key == HOSTNAME_LABEL for term in need.terms):
        return None
    return growth_part(cycle, need, domains)


def _pods_in(
    cycle: Cycle, need: NeedView, terms: Sequence[Term], values: Mapping[str, str | None]
) -> int | None:
    """How many pods a new machine's domains have; None if a term is at its limit."""
    there = 0
    for term in terms:
        if term.key != HOSTNAME_LABEL:
            pods, domain = pods_by_domain(cycle, need, term.key), values[term.key]
            here = pods.get(domain, 0)
            least = term.least(pods) if domain in term.counting else 0
            if term.max_skew is not None and here >= least + term.max_skew:
                return None
            if term.most is not None and here >= term.most:
                return None
            there += here
    return there


def _share_of(cycle: Cycle, need: NeedView, terms: Sequence[Term], there: int, domains: int) -> int:
    """An even share of all pods for one domain, less those already there."""
    left = sum(size.left for size in need.sizes)
    placed = sum(pods_by_domain(cycle, need, terms[0].key).values())
    share = max(1, -(-(placed + left) // domains) - there)
    for term in terms:
        if term.most is not None:
            share = min(share, term.most)
        elif term.key == HOSTNAME_LABEL and placed:
            least = term.least(pods_by_domain(cycle, need, term.key))
            assert term.max_skew is not None
            share = min(share, least + term.max_skew)
    return max(1, min(share, left))


def _worth_entering(cycle: Cycle, need: NeedView, offers: Sequence[Offer]) -> set[Domain] | None:
    """Which domains to acquire machines in; None for all."""
    keys = label_keys(need)
    if len(need.terms) != 1 or len(keys) != 1 or need.terms[0].topology_key == HOSTNAME_LABEL:
        return None
    term = terms_of(cycle, need)[0]
    assert term.max_skew is not None
    room = _room_by_domain(cycle, need, offers, keys[0])
    there = {str(domain) for domain in term.counting}
    pods = sum(size.pods for size in need.sizes if not size.impossible)

    def holds(domains: Iterable[str]) -> int:
        rooms = [room.get(domain, 0) for domain in domains]
        least = min(rooms, default=0) if len(rooms) >= term.min_domains else 0
        return sum(min(each, least + (term.max_skew or 0)) for each in rooms)

    chosen = there | {domain for domain in room if room[domain] > 0}
    best = chosen
    while holds(chosen) < pods and chosen - there:
        smallest = min(chosen - there, key=lambda domain: (room[domain], domain))
        chosen = chosen - {smallest}
        if holds(chosen) > holds(best):
            best = chosen
    return {(domain,) for domain in best}


def _room_by_domain(
    cycle: Cycle, need: NeedView, offers: Sequence[Offer], key: str
) -> dict[str, int]:
    """How many pods each domain could hold: those already there, and as many of the largest waiting
    size as it has room for.
    """
    room = {str(d): n for d, n in pods_by_domain(cycle, need, key).items() if d is not None}
    for slot in cycle.slots_for(need):
        room.setdefault(slot.machine.flavour.labels[key], 0)
    there = dict(room)
    for size in need.sizes:
        if size.left:
            for domain, more in _more_room(cycle, need, size, offers, key).items():
                if room.get(domain, 0) == there.get(domain, 0):
                    room[domain] = there.get(domain, 0) + more
    return room


def _more_room(
    cycle: Cycle, need: NeedView, size: PodSize, offers: Sequence[Offer], key: str
) -> dict[str, int]:
    """How many more pods of a size each domain could hold."""
    room: dict[str, int] = {}

    def add(domain: str, pods: int) -> None:
        room[domain] = room.get(domain, 0) + (min(pods, 1) if need.one_a_machine else pods)

    for slot in cycle.slots_for(need):
        add(slot.machine.flavour.labels[key], slot.fits(size))
    for offer in offers:
        for kind in offer:
            fits = min(kind.room.get(name, 0) // amount for name, amount in size.amounts.items())
            for machine in kind.machines:
                if cycle.is_free(need, machine) and cycle.ceiling_allows(need, machine, ()):
                    add(str(kind.domain[0]), fits)
    return room


class DomainChoice(NamedTuple):
    """A gang's domain, None if no machine has the label, and whether all of it fits."""

    domain: str | None
    whole: bool


@dataclass
class GangCandidate:
    """A machine that a gang could use, and where it comes from."""

    source: int
    free: dict[str, int]


def best_domain(
    cycle: Cycle, need: NeedView, further: Sequence[tuple[int, Offer]] = (), kept: str | None = None
) -> DomainChoice:
    """The best domain for the unplaced pods of a gang."""
    candidates = _candidates(cycle, need, further)
    waiting = [size for size in need.sizes if size.left]
    want: dict[str, int] = {}
    for size in waiting:
        for name, amount in size.amounts.items():
            want[name] = want.get(name, 0) + amount * size.left
    asked = [name for name in cycle.resources if name in want]
    worth = {
        size: sum(float(size.amounts.get(n, 0)) / float(want[n]) for n in asked) for size in waiting
    }
    ranked = []
    for domain, machines in candidates.items():
        room = sum(round(sum(m.free[n] / float(want[n]) for n in asked) * _STEPS) for m in machines)
        served, whole = _filled(need, machines, waiting, worth)
        own, clusters = served[OWN], served[OWN] + served[CLUSTER]
        non_disruptive = clusters + served[ACQUIRABLE] + served[SURPLUS]
        if whole:
            parts = [
                domain != kept,
                *(-_steps(part) for part in (non_disruptive, clusters, own)),
                room,
            ]
        else:
            parts = [-_steps(part) for part in (own, sum(served), clusters)]
        ranked.append(((not whole, *parts, -len(machines)), domain, whole))
    if not ranked:
        return DomainChoice(None, False)
    _, domain, whole = min(ranked)
    return DomainChoice(domain, whole)


def _steps(part: float) -> int:
    return round(part * _STEPS)


def _filled(
    need: NeedView,
    machines: Sequence[GangCandidate],
    sizes: Sequence[PodSize],
    worth: Mapping[PodSize, float],
) -> tuple[list[float], bool]:
    """Pack first fit: how much machines of each source serve, and whether all pods fit."""
    served, whole = [0.0] * 5, True
    free = [dict(machine.free) for machine in machines]
    taken: set[int] = set()
    for size in sizes:
        rest = size.left
        for at, machine in enumerate(machines):
            pods = min(rest, *(free[at][name] // a for name, a in size.amounts.items()))
            if need.one_a_machine:
                pods = 0 if at in taken else min(pods, 1)
            if pods > 0:
                taken.add(at)
                rest -= pods
                served[machine.source] += pods * worth[size]
                for name, amount in size.amounts.items():
                    free[at][name] -= pods * amount
        whole = whole and rest == 0
    return served, whole


def _candidates(
    cycle: Cycle, need: NeedView, further: Sequence[tuple[int, Offer]]
) -> dict[str, list[GangCandidate]]:
    """By domain, the machines that the gang could use: its own, its cluster's, those that it can
    acquire, those of others.
    """
    key = str(need.profile.same_key)
    found: dict[str, list[GangCandidate]] = {}

    def add(source: int, domain: str, free: Mapping[str, int]) -> None:
        amounts = {name: free.get(name, 0) for name in cycle.resources}
        found.setdefault(domain, []).append(GangCandidate(source, amounts))

    slots = list(cycle.slots_for(need))
    for slot in sorted(slots, key=lambda slot: slot.machine.last_claimed_by != need.index):
        source = OWN if slot.machine.last_claimed_by == need.index else CLUSTER
        free = {name: slot.free(name) for name in cycle.resources}
        add(source, slot.machine.flavour.labels[key], free)
    offers = list(further)
    if need.index not in cycle.not_acquiring:
        offers = [*((ACQUIRABLE, o) for o in free_machines(cycle, need, (key,))), *offers]
    for source, kind in ((source, kind) for source, offer in offers for kind in offer):
        for _ in filter(lambda machine: cycle.is_free(need, machine), kind.machines):
            add(source, str(kind.domain[0]), kind.room)
    return found
