"""The oracle's phase 1: the order of service, and gangs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bigfleet.engine.snapshot import NONE
from tests.engine.oracle.acquiring import (
    Offer,
    acquire,
    choose,
    free_machines,
    give_back,
    order,
    order_machines,
    unused_orders,
)
from tests.engine.oracle.cycle import Cycle, NeedView
from tests.engine.oracle.domains import (
    DomainChoice,
    acquire_constrained,
    best_domain,
    label_keys,
)
from tests.engine.oracle.objects import ACQUIRABLE_STATES, Machine, S, Slot
from tests.engine.oracle.packing import (
    BALANCED,
    consolidating,
    pack,
    place_constrained,
    place_plain,
    plain_order,
)


def serve_all(cycle: Cycle) -> None:
    """Place pods and acquire machines for all needs, the highest priority first."""
    for need in cycle.needs:
        if need.kind == "additional":
            own = [s for s in cycle.slots_for(need) if s.machine.last_claimed_by == need.index]
            first_fit(need, sorted(own, key=lambda slot: slot.machine.state is S.CONFIGURED))
    for priority in sorted({need.priority for need in cycle.needs}, reverse=True):
        its = [need for need in cycle.needs if need.priority == priority]
        gangs = [need for need in its if need.kind == "gang" and need.lacks]
        last = [need for need in gangs if not _begin(cycle, need)]
        for need in (need for need in its if need.kind == "plain"):
            _place_on_drained(cycle, need)
        for need in (need for need in its if need.kind == "constrained"):
            _take_arrived(cycle, need)
            place_constrained(cycle, need)
        for cluster in cycle.clusters:
            place_plain(cycle, cluster, plain_order(cycle, cluster.number, priority))
        for need in [*(need for need in its if need not in last), *last]:
            serve(cycle, need)


def _take_arrived(cycle: Cycle, need: NeedView) -> None:
    """Let a constrained need use what was created for it and has just arrived in a new domain."""
    slots = cycle.cluster_of(need).slots
    known = {(k, s.machine.flavour.labels.get(k)) for s in slots for k in label_keys(need)}
    arrived = [
        machine
        for machine in cycle.machines
        if machine.arrived_for == need.index
        if any((key, machine.flavour.labels.get(key)) not in known for key in label_keys(need))
    ]
    if arrived and need.lacks and need.index not in cycle.not_acquiring:
        acquire_constrained(cycle, need, arrived)
        _give_back_unused(cycle, need)


def _place_on_drained(cycle: Cycle, need: NeedView) -> None:
    """Place a plain need's pods on the machines that drain for it."""
    cluster = cycle.cluster_of(need)
    before, strategy = cluster.slots, consolidating(cluster)
    drained = [s for s in before if s.machine.state is S.DRAINING]
    cluster.slots = [s for s in drained if s.machine.initially_reserved_for == need.index]
    if cluster.slots:
        order = plain_order(cycle, need.cluster, need.priority)
        pack(cycle, [size for size in order if size.need == need.index], strategy)
    cluster.slots = before


def serve(cycle: Cycle, need: NeedView) -> None:
    """Place one need's unplaced pods, and acquire machines for the rest."""
    if not need.lacks:
        return
    _start_over(cycle, need)
    if need.kind != "plain" or need.is_folded:
        _use_headroom(cycle, need)
    if need.kind == "gang":
        serve_gang(cycle, need)
    else:
        place_again(cycle, need)
    if need.kind != "gang" and need.lacks and need.index not in cycle.not_acquiring:
        if need.kind == "constrained":
            acquire_constrained(cycle, need, cycle.machines)
        else:
            acquire(cycle, need, plain_order(cycle, need.cluster, need.priority))
    if need.lacks and _use_headroom(cycle, need):
        place_again(cycle, need)
    _return_unused_headroom(cycle, need)
    if need.kind == "constrained":
        _give_back_unused(cycle, need)


def _use_headroom(cycle: Cycle, need: NeedView) -> bool:
    """Let a need use the headroom. Its domains existed all along, so pods with topology constraints
    are placed again.
    """
    cluster = cycle.cluster_of(need)
    useful = [machine for machine in cluster.headroom_pool if need.accepts(machine.flavour)]
    if useful and need.kind != "additional":
        cluster.headroom_pool = [
            machine for machine in cluster.headroom_pool if machine not in useful
        ]
        for machine in useful:
            cycle.add(cluster, machine)
        for slot in cluster.slots if need.terms or need.apart else ():
            slot.clear([size for size in slot.pods if size.need == need.index])
    return bool(useful) and need.kind != "additional"


def _start_over(cycle: Cycle, need: NeedView) -> None:
    """In its first turn, place a constrained need anew if another has got the headroom since."""
    slots = cycle.cluster_of(need).slots
    if need.kind != "constrained" or need.index in cycle.served:
        return
    cycle.served.add(need.index)
    if any(slot.machine.headroom for slot in slots):
        for slot in slots:
            slot.clear([size for size in slot.pods if size.need == need.index])


def _return_unused_headroom(cycle: Cycle, need: NeedView) -> None:
    """Keep from later needs the headroom that a need was offered and has left empty."""
    cluster = cycle.cluster_of(need)
    unused = [slot.machine for slot in cluster.slots if slot.machine.headroom and not slot.pods]
    cluster.headroom_pool += unused
    cluster.slots = [slot for slot in cluster.slots if slot.machine not in unused]


def _give_back_unused(cycle: Cycle, need: NeedView) -> None:
    """Give back what a need has ordered and has no pods, since it was placed again."""
    empty, ordered = unused_orders(cycle, need), cycle.acquired.get(need.index, [])
    give_back(cycle, need, unused := [machine for machine in ordered if machine in empty])
    if unused:
        cycle.acquired[need.index] = [machine for machine in ordered if machine not in unused]


def place_again(cycle: Cycle, need: NeedView) -> None:
    """Place a need's unplaced pods on its cluster's machines."""
    if need.kind == "gang":
        place_in_gang_domain(cycle, need)
    elif need.kind == "constrained":
        place_constrained(cycle, need)
    elif need.kind == "plain":
        pack(cycle, need.sizes, BALANCED)


def first_fit(need: NeedView, slots: Sequence[Slot]) -> None:
    """Place pods first fit, the largest first."""
    for size in need.sizes:
        for slot in slots:
            pods = min(slot.fits(size), size.left)
            if need.one_a_machine:
                has_any = any(other.need == need.index for other in slot.pods)
                pods = 0 if has_any else min(pods, 1)
            if pods > 0:
                slot.put(size, pods)


def _begin(cycle: Cycle, need: NeedView) -> bool:
    """Place a gang in a domain that holds all of it, or else on its machines in service."""
    choice = best_domain(cycle, need, kept=reserved_domain(cycle, need))
    if choice.domain is not None:
        cycle.gang_domains[need.index] = choice.domain
        place_in_gang_domain(cycle, need, in_service=not choice.whole)
    drop_idle_reservation(cycle, need)
    return choice.whole


def drop_idle_reservation(cycle: Cycle, need: NeedView) -> None:
    """Release the free machines reserved for a gang that is placed without them."""
    for machine in [] if need.lacks else cycle.machines:
        if (
            machine.reserved_for == need.index
            and machine.state in ACQUIRABLE_STATES
            and not machine.is_unavailable
        ):
            machine.reserved_for = NONE


def serve_gang(cycle: Cycle, need: NeedView) -> None:
    """Place and acquire again, in the domain that is best now; acquire nothing if the ceiling
    withholds a part.
    """
    unplace_gang(cycle, need)
    if need.index not in cycle.not_acquiring:
        cycle.at_ceiling.discard(need.index)
    kept = reserved_domain(cycle, need)
    choice = best_domain(cycle, need, kept=kept)
    place_gang(cycle, need, choice if choice.whole or kept is None else DomainChoice(kept, False))
    if need.lacks and need.index not in cycle.not_acquiring:
        acquire_in_domain(cycle, need)
        if need.lacks and need.index in cycle.at_ceiling:
            cycle.not_acquiring.add(need.index)
            serve_gang(cycle, need)
        elif need.lacks and choice.whole:
            offers = free_machines(cycle, need, (str(need.profile.same_key),))
            take_first_fit(cycle, need, choice, offers)
    drop_idle_reservation(cycle, need)


def place_gang(cycle: Cycle, need: NeedView, choice: DomainChoice) -> None:
    """Place the gang's pods on its cluster's machines in the chosen domain."""
    if choice.domain is not None:
        cycle.gang_domains[need.index] = choice.domain
        place_in_gang_domain(cycle, need)


def place_in_gang_domain(cycle: Cycle, need: NeedView, *, in_service: bool = False) -> None:
    """Place pods on the gang's own machines, then on its cluster's; `in_service`: only on its own
    that have joined or are about to.
    """
    key, domain = str(need.profile.same_key), cycle.gang_domains.get(need.index)
    slots = [
        slot
        for slot in cycle.slots_for(need)
        if domain is not None and slot.machine.flavour.labels[key] == domain
    ]
    own = [slot for slot in slots if slot.machine.last_claimed_by == need.index]
    if in_service:
        joined = (S.CONFIGURED, S.CONFIGURING)
        first_fit(need, [slot for slot in own if slot.machine.state in joined])
    else:
        first_fit(need, [*own, *(slot for slot in slots if slot not in own)])


def acquire_in_domain(cycle: Cycle, need: NeedView) -> None:
    """Acquire machines in the gang's domain."""
    offers = free_machines(cycle, need, (str(need.profile.same_key),))
    taken = preempt_in_domain(cycle, need, offers)
    cycle.acquired.setdefault(need.index, []).extend(taken)


def preempt_in_domain(cycle: Cycle, need: NeedView, offers: Iterable[Offer]) -> list[Machine]:
    """Order machines of `offers` in the gang's domain."""
    domain = (cycle.gang_domains.get(need.index),)
    inside = [[kind for kind in offer if kind.domain == domain] for offer in offers]
    chosen = choose(cycle, need, (), inside)
    order(cycle, need, chosen)
    return [one.machine for one in chosen]


def take_first_fit(
    cycle: Cycle, need: NeedView, choice: DomainChoice, offers: Iterable[Offer]
) -> list[Machine]:
    """Start over and order machines of `offers` first fit, if that completes the gang within its
    cluster's ceiling; those in a cluster are returned.
    """
    unplace_gang(cycle, need)
    place_gang(cycle, need, choice)
    domain, pods = (cycle.gang_domains.get(need.index),), sum(size.left for size in need.sizes)
    free: list[Machine] = []
    for group in (group for offer in offers for group in offer if group.domain == domain):
        free += [machine for machine in group.machines if cycle.is_free(need, machine)][:pods]
    slots = order_machines(cycle, need, free)
    first_fit(need, slots)
    used = [slot.machine for slot in slots if slot.pods]
    give_back(cycle, need, [machine for machine in free if machine not in used])
    if need.lacks or not cycle.within_ceiling(need.cluster, cycle.held(need.cluster)):
        give_back(cycle, need, used)
        return []
    acquired = [machine for machine in used if machine.state in ACQUIRABLE_STATES]
    cycle.acquired.setdefault(need.index, []).extend(acquired)
    return [machine for machine in used if machine not in acquired]


def unplace_gang(cycle: Cycle, need: NeedView) -> None:
    """Undo the gang's placements and acquisitions."""
    for slot in cycle.cluster_of(need).slots:
        slot.clear([size for size in slot.pods if size.need == need.index])
    give_back(cycle, need, cycle.acquired.pop(need.index, []))
    cycle.gang_domains.pop(need.index, None)


def reserved_domain(cycle: Cycle, need: NeedView) -> str | None:
    """The domain reserved for a gang, if some flavour has that label value."""
    reservation = cycle.reserved.get(need.index)
    key = str(need.profile.same_key)
    names = {flavour.labels.get(key) for flavour in cycle.fleet.flavours}
    known = reservation is not None and reservation.domain in names
    return reservation.domain if reservation is not None and known else None
