"""The oracle's acquisitions: which machines a need selects."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bigfleet.engine.snapshot import NONE
from bigfleet.model.labels import HOSTNAME_LABEL
from tests.engine.oracle.cycle import Cycle, NeedView
from tests.engine.oracle.objects import ACQUIRABLE_STATES, Machine, PodSize, Slot
from tests.engine.oracle.packing import pods_by_domain

_TIERS = 4
_MAX_REDUNDANCY_CHECK = 256
_SLOT_WORTH = 1e-3
_MOST_EXPECTED_SIZES = 32
LEAST_PARTS = 4

Domain = tuple[str | None, ...]


class MachineGroup(NamedTuple):
    """Machines of equal capacity, cost, tier and domain, used in the order given; the first free
    one is rated for all.
    """

    room: Mapping[str, int]
    cost: float
    domain: Domain
    machines: list[Machine]


# The groups considered together; the next offer is used once this one is exhausted.
Offer = list[MachineGroup]


@dataclass(eq=False)
class Chosen:
    """A machine selected for a need, and the pods that it takes."""

    machine: Machine
    source: int
    cost: float
    room: Mapping[str, int]
    pods: dict[PodSize, int] = field(default_factory=dict)

    def fits(self, size: PodSize) -> int:
        """How many more pods fit."""
        free = []
        for name, amount in size.amounts.items():
            used = sum(s.amounts.get(name, 0) * pods for s, pods in self.pods.items())
            free.append((self.room.get(name, 0) - used) // amount)
        return min(free)

    def takes(self, cycle: Cycle, size: PodSize) -> int:
        """How many more pods of a size it takes."""
        need = cycle.needs[size.need]
        if not need.accepts(self.machine.flavour):
            return 0
        if need.one_a_machine and any(other.need == size.need for other in self.pods):
            return 0
        return min(self.fits(size), 1) if need.one_a_machine else self.fits(size)


def group_machines(
    cycle: Cycle, need: NeedView, machines: Iterable[Machine], keys: Sequence[str] = ()
) -> Offer:
    """The `machines` that a need accepts, grouped; domains are by the labels `keys`."""
    groups: dict[tuple[object, ...], MachineGroup] = {}
    for machine in machines:
        flavour = machine.flavour
        if need.accepts(flavour):
            room, cost, tier = (
                cycle.room(need.cluster, flavour), need.cost(flavour), need.tier(flavour),
            )  # fmt: skip
            cost = flavour.price_per_hour if tier >= 2 else cost
            domain = tuple(flavour.labels.get(key) for key in keys)
            amounts = tuple(room.get(name, 0) for name in cycle.resources)
            names = tuple((name is not None, name or "") for name in domain)
            group = groups.setdefault(
                (amounts, cost, tier, names), MachineGroup(room, cost, domain, [])
            )
            group.machines.append(machine)
    return [group for _, group in sorted(groups.items(), key=lambda item: item[0])]


def free_machines(
    cycle: Cycle,
    need: NeedView,
    keys: Sequence[str] = (),
    among: Sequence[Machine] | None = None,
) -> Iterator[Offer]:
    """Machines that belong to no cluster, by tier, idle ones before speculative ones."""
    for tier in range(_TIERS):
        for state in ACQUIRABLE_STATES:
            its = [m for m in (cycle.machines if among is None else among) if m.state is state]
            its.sort(key=lambda machine: (-machine.last_reclamation, machine.tie_break))
            yield group_machines(
                cycle, need, (m for m in its if need.tier(m.flavour) == tier), keys
            )


def preferred_keys(need: NeedView) -> tuple[str, ...]:
    """The topology key of the need's first soft spread term."""
    keys = [term.topology_key for term in need.profile.spread if not term.hard]
    return tuple(key for key in keys if key != HOSTNAME_LABEL)[:1]


@dataclass
class Wanted:
    """The pending pods that machines are selected for: the need's (`own`), then others'; how many
    of each size are `left`; the value of a pod of each size; how many `more` pods are expected.
    `withheld`: the cluster's ceiling withheld a machine.
    """

    own: list[PodSize]
    sizes: list[PodSize]
    left: dict[PodSize, int]
    worth: dict[PodSize, float]
    in_domain: dict[Domain, int]
    more: dict[PodSize, int]
    withheld: bool = False


def choose(
    cycle: Cycle,
    need: NeedView,
    others: Sequence[PodSize],
    offers: Iterable[Offer],
    *,
    keys: Sequence[str] = (),
    first: int = 0,
    pods_at_most: int | None = None,
    one_machine: bool = False,
    expected: Mapping[PodSize, int] | None = None,
) -> list[Chosen]:
    """Select machines, one offer after the other, until the need's pods are placed: those of
    its sizes from the one with number `first` on. A machine may be larger for the pods `expected`.
    """
    wanted = _wanted(cycle, need, others, first, pods_at_most, keys)
    if not need.requests_scarce:
        _expect(cycle, wanted, expected, one_machine=one_machine)
    chosen: list[Chosen] = []
    for source, offer in enumerate(offers):
        while any(wanted.left[size] for size in wanted.own) and not (chosen and one_machine):
            best = _best(cycle, need, offer, wanted, [one.machine for one in chosen])
            if best is None:
                break
            group, one = best
            one.source = source
            one.machine.is_unavailable = True
            for size, pods in one.pods.items():
                wanted.left[size] -= pods
                if size.need == need.index:
                    its = wanted.in_domain.get(group.domain, 0)
                    wanted.in_domain[group.domain] = its + pods
            chosen.append(one)
    if wanted.withheld and any(wanted.left[size] for size in wanted.own):
        cycle.at_ceiling.add(need.index)
    return _without_redundant(cycle, wanted.sizes, chosen)


def first_servable(cycle: Cycle, need: NeedView, offers: Sequence[Offer]) -> int:
    """The place of the need's first size of which a machine could hold a pending pod."""
    wanted = _wanted(cycle, need, (), 0, None, ())
    heads = [(group, _head(cycle, need, group, wanted, ())) for offer in offers for group in offer]
    rooms = [group.room for group, head in heads if head is not None]
    for place, size in enumerate(need.sizes):
        if size.left and any(need.holds_one(room, size) for room in rooms):
            return place
        if size.left and wanted.withheld:
            cycle.at_ceiling.add(need.index)
    return len(need.sizes)


def _wanted(
    cycle: Cycle,
    need: NeedView,
    others: Sequence[PodSize],
    first: int,
    pods_at_most: int | None,
    keys: Sequence[str],
) -> Wanted:
    left: dict[PodSize, int] = {}
    for size in need.sizes[first:]:
        before = sum(left.values())
        left[size] = size.left if pods_at_most is None else min(size.left, pods_at_most - before)
    own = [size for size in left if left[size]]
    further = [size for size in others if size.left and size.need != need.index]
    left.update((size, size.left) for size in further)
    sizes = [*own, *further]
    worth = _worth(cycle, sizes, left)
    in_domain: dict[Domain, int] = {}
    for key in keys:
        counted = pods_by_domain(cycle, need, key)
        in_domain = {(str(d) if d is not None else None,): n for d, n in counted.items()}
    return Wanted(own, sizes, left, worth, in_domain, dict.fromkeys(sizes, 0))


def _worth(
    cycle: Cycle, sizes: Sequence[PodSize], left: Mapping[PodSize, int]
) -> dict[PodSize, float]:
    """The value of a pod of each size: its shares of all that is pending."""
    total = {
        name: float(sum(size.amounts.get(name, 0) * left[size] for size in sizes))
        for name in cycle.resources
    }
    worth = {}
    for size in sizes:
        worth[size] = 0.0
        for name in cycle.resources:
            if total[name] > 0:
                part = float(size.amounts.get(name, 0)) / total[name]
                worth[size] += part * (_SLOT_WORTH if name == "pods" else 1.0)
    return worth


def _expect(
    cycle: Cycle, wanted: Wanted, expected: Mapping[PodSize, int] | None, *, one_machine: bool
) -> None:
    """Size machines for the `expected` pods as well; None for the growth of each size."""
    if expected is None:
        growth = 0.0 if one_machine else cycle.settings.growth
        wanted.more = {size: math.floor(size.pods * growth + 1e-9) for size in wanted.sizes}
        return
    further = sorted(
        (size for size in expected if size not in wanted.own),
        key=lambda size: (size.need, -size.share, size.number),
    )
    wanted.sizes = [*wanted.own, *further]
    wanted.left.update(dict.fromkeys(further, 0))
    wanted.worth = _worth(cycle, wanted.sizes, wanted.left)
    wanted.more = {size: expected.get(size, 0) for size in wanted.sizes}


def _head(
    cycle: Cycle, need: NeedView, group: MachineGroup, wanted: Wanted, chosen: Sequence[Machine]
) -> Machine | None:
    """The first machine of a group that is free for the need and within its cluster's ceiling."""
    for machine in group.machines:
        if cycle.is_free(need, machine):
            if cycle.ceiling_allows(need, machine, chosen):
                return machine
            wanted.withheld = True
    return None


def _best(
    cycle: Cycle, need: NeedView, offer: Offer, wanted: Wanted, chosen: Sequence[Machine]
) -> tuple[MachineGroup, Chosen] | None:
    """The next machine, filled; None if none helps."""
    heads = [
        (group, machine)
        for group in offer
        for machine in [_head(cycle, need, group, wanted, chosen)]
        if machine is not None
    ]
    waiting = [size for size in wanted.own if wanted.left[size]]
    lead = next((s for s in waiting if any(need.holds_one(k.room, s) for k, _ in heads)), None)
    if lead is None:
        return None
    ranked = []
    for place, (group, machine) in enumerate(heads):
        if need.holds_one(group.room, lead):
            one = Chosen(machine, 0, group.cost, group.room)
            use = 0.0
            for size in wanted.sizes:
                pods = min(one.takes(cycle, size), wanted.left[size] + wanted.more[size])
                if pods:
                    one.pods[size] = pods
                    use += pods * wanted.worth[size]
            ranked.append((group.cost / use, use, place, group, one))
    tolerance = 0.0 if need.requests_scarce else cycle.settings.price_tolerance
    limit = min(rate for rate, *_ in ranked) * (1 + tolerance)
    _, _, _, group, one = min(
        (each for each in ranked if each[0] <= limit),
        key=lambda each: (
            -each[1],
            each[3].cost,
            wanted.in_domain.get(each[3].domain, 0),
            sum(each[3].room.values()),
            each[2],
        ),
    )
    one.pods = {}
    for size in wanted.sizes:
        if pods := min(one.takes(cycle, size), wanted.left[size]):
            one.pods[size] = pods
    return group, one


def _without_redundant(
    cycle: Cycle, sizes: Sequence[PodSize], chosen: list[Chosen]
) -> list[Chosen]:
    """Drop the most expensive machines whose pods all fit on the others."""
    if len(chosen) > _MAX_REDUNDANCY_CHECK:
        return chosen
    kept = list(chosen)
    for _, one in sorted(
        enumerate(chosen), key=lambda pair: (-pair[1].source, -pair[1].cost, -pair[0])
    ):
        others = [other for other in kept if other is not one]
        before = [dict(other.pods) for other in others]
        if all(_moved(cycle, size, one.pods.get(size, 0), others) for size in sizes) and others:
            kept.remove(one)
            one.machine.is_unavailable = False
        else:
            for other, pods in zip(others, before, strict=True):
                other.pods = pods

    return kept


def _moved(cycle: Cycle, size: PodSize, pods: int, others: Sequence[Chosen]) -> bool:
    """Place pods first fit; returns whether all of them fit."""
    for other in others:
        some = min(pods, other.takes(cycle, size))
        if some > 0:
            other.pods[size] = other.pods.get(size, 0) + some
            pods -= some
    return pods == 0


def order(cycle: Cycle, need: NeedView, chosen: Sequence[Chosen]) -> list[Slot]:
    """Order the chosen machines for the need's cluster, and place their pods."""
    slots = order_machines(cycle, need, [one.machine for one in chosen])
    for slot, one in zip(slots, chosen, strict=True):
        for size, pods in one.pods.items():
            slot.put(size, pods)
    return slots


def order_machines(cycle: Cycle, need: NeedView, machines: Sequence[Machine]) -> list[Slot]:
    """Order machines for the need's cluster, for needs of at most its priority."""
    slots = []
    for machine in machines:
        slot = cycle.add(cycle.cluster_of(need), machine)
        slot.max_priority, slot.orderer = need.priority, need.index
        machine.is_unavailable, machine.ordered_by = True, need.index
        slots.append(slot)
    return slots


def unused_orders(cycle: Cycle, need: NeedView) -> list[Machine]:
    """The machines that a need has ordered and that have no pods."""
    slots = cycle.cluster_of(need).slots
    return [slot.machine for slot in slots if slot.orderer == need.index and not slot.pods]


def give_back(cycle: Cycle, need: NeedView, machines: Sequence[Machine]) -> None:
    """Undo the orders of these machines."""
    cluster = cycle.cluster_of(need)
    for machine in machines:
        for slot in [s for s in cluster.slots if s.machine is machine and s.orderer == need.index]:
            slot.clear()
            cluster.slots.remove(slot)
        machine.is_unavailable, machine.ordered_by = False, NONE


def acquire(cycle: Cycle, need: NeedView, others: Sequence[PodSize]) -> None:
    """Acquire machines for the unplaced pods of a plain need, which `others` are placed on at once,
    or of an additional one.
    """
    keys = preferred_keys(need)
    expected = None
    if need.kind == "additional":
        others = ()
        left = sum(size.left for size in need.sizes) if need.one_a_machine else 0
        expected = growth_part(cycle, need, max(LEAST_PARTS, left))
    offers = free_machines(cycle, need, keys)
    chosen = choose(cycle, need, others, offers, keys=keys, expected=expected)
    order(cycle, need, chosen)
    cycle.acquired.setdefault(need.index, []).extend(one.machine for one in chosen)


def growth_part(cycle: Cycle, need: NeedView, parts: int) -> dict[PodSize, int]:
    """One of `parts` parts of the pods by which the need's cluster will grow: those in the middle
    of equal parts of its pods, the largest first.
    """
    sizes = [
        size
        for other in cycle.needs
        if other.cluster == need.cluster and other.priority == need.priority
        if other.kind in ("plain", "constrained") and other.one_a_machine == need.one_a_machine
        for size in other.sizes
        if not size.impossible
    ]
    sizes.sort(key=lambda size: (-size.share, size.need))
    total = sum(size.pods for size in sizes)
    expected = int(total * cycle.settings.growth / parts + 1e-9)
    sample = min(expected, _MOST_EXPECTED_SIZES)
    more: dict[PodSize, int] = {}
    for part in range(sample):
        middle = (2 * part + 1) * total // (2 * sample)
        for size in sizes:
            if middle < size.pods:
                break
            middle -= size.pods
        pods = (part + 1) * expected // sample - part * expected // sample
        more[size] = more.get(size, 0) + pods
    return more
