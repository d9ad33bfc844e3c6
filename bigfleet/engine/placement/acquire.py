"""Acquisition of machines that belong to no cluster, idle ones before speculative ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.fit.cost import TIERS
from bigfleet.engine.fit.pod_classes import FlavourFit
from bigfleet.engine.kernels.scoring import NO_LIMIT
from bigfleet.engine.kernels.selection import (
    WITHHELD,
    CandidatePool,
    FleetAvailability,
    PendingPods,
    SelectionBuffer,
    group_rows,
    has_candidate,
    redundant,
    select_machines,
    selection_buffer,
    weights_of,
)
from bigfleet.engine.placement.growth import (
    ExpectedPods,
    expected_pods,
    parts_by_machine,
)
from bigfleet.engine.snapshot import ACQUIRABLE, Flags, Floats, Ints, Longs, Rows
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.machine import MachineState

# Bound the arrays of a selection: most needs acquire few machines.
_FIRST_BATCH = 16
_MACHINES_PER_BATCH = 1024
# In larger selections, redundant machines are a negligible part.
_MAX_REDUNDANCY_CHECK = 256


# A pool, and which of its groups [G] are candidates.
EligiblePool = tuple[CandidatePool, Flags]
# What the pools of a need depend on: its flavour fit, its cluster's capacities, and labels.
_PoolsKey = tuple[int, int, tuple[str, ...]]
_T = TypeVar("_T")


class FreePools:
    """Pools of the machines that belong to no cluster, or those `among` them [n], cached for one
    decision.
    """

    def __init__(self, state: CycleState, among: Flags | None = None) -> None:
        self._state = state
        self._among = np.ones(len(state.fleet), np.bool_) if among is None else among
        self._free = {each: self._free_rows(each) for each in ACQUIRABLE}
        self._pools: dict[_PoolsKey, Sequence[EligiblePool]] = {}
        #: what was computed of them
        self._derived: dict[Hashable, Any] = {}

    def pools(self, index: int, keys: tuple[str, ...] = ()) -> Sequence[EligiblePool]:
        """The machines that need `index` accepts, by tier, in each the idle ones first, with
        domains by the labels `keys`.
        """
        key = self._key(index, keys)
        if key not in self._pools:
            state, flavour_fit = self._state, self._state.flavour_fit(index)
            rows = [self._free[machines] for machines in ACQUIRABLE]
            pools = [pool_of(state, each, flavour_fit, key[1], keys) for each in rows]
            self._pools[key] = [*_in_tiers(pools)]
        return self._pools[key]

    def remember(self, index: int, name: Hashable, compute: Callable[[], _T]) -> _T:
        """What `compute` returns, which follows from `name` and which machines the need accepts."""
        key = self._key(index, ()), name
        if key not in self._derived:
            self._derived[key] = compute()
        found: _T = self._derived[key]
        return found

    def _key(self, index: int, keys: tuple[str, ...]) -> _PoolsKey:
        number = self._state.capacities.number(self._state.cluster_of(index))
        return self._state.flavour_fit(index).number, number, keys

    def _free_rows(self, machines: MachineState) -> Rows:
        fleet = self._state.fleet
        rows = fleet.by_tie_break(np.flatnonzero((fleet.state == machines) & self._among))
        # A machine with a high reclamation penalty (a warm cache, say) is used first: the need that
        # it served has most use for it.
        return rows[np.argsort(~fleet.reclamation_bucket[rows], kind="stable")]


def _in_tiers(pools: Sequence[CandidatePool]) -> Iterator[EligiblePool]:
    """The pools by tier, and within a tier in the order given."""
    for tier in range(TIERS):
        for pool in pools:
            eligible = pool.tier == tier
            if eligible.any():
                yield pool, eligible


def pool_of(
    state: CycleState,
    rows: Rows,
    flavour_fit: FlavourFit,
    capacity_number: int,
    keys: tuple[str, ...] = (),
) -> CandidatePool:
    """The pool of those `rows` that a need accepts, which it uses in the order given.

    Grouping by capacity, cost, tier and domain keeps the cost of a selection independent of the
    number of machines.
    """
    flavour = state.fleet.flavour
    labels = [state.columns.label(key).codes for key in keys]
    # Infinite costs cannot be compared; within their tier, the price decides.
    costs = np.where(np.isinf(flavour_fit.costs), state.columns.price, flavour_fit.costs)
    group_of, domain_of = _groups_of(state, flavour_fit, capacity_number, costs, keys)
    rows, starts = group_rows(rows, flavour, flavour_fit.accepted, group_of)
    like = flavour[rows[starts[:-1]]]
    codes = np.stack(labels, axis=1) if keys else np.zeros((len(state.columns), 1), np.int32)
    _, first, domain = np.unique(domain_of[like], return_index=True, return_inverse=True)
    return CandidatePool(
        rows=rows,
        starts=starts,
        first=starts[:-1].copy(),
        capacity=state.capacities.matrix(capacity_number)[like],
        costs=costs[like],
        tier=flavour_fit.tier[like],
        domain=domain.astype(np.int32),
        codes=codes[like[first]],
    )


def _groups_of(
    state: CycleState,
    flavour_fit: FlavourFit,
    capacity_number: int,
    costs: Floats,
    keys: tuple[str, ...],
) -> tuple[Ints, Ints]:
    """For each flavour [F] the number of its group, in the order of capacity, cost, tier and
    domain, and of its domain, in the order of its codes.
    """
    columns = state.columns

    def domains() -> Ints:
        labels = [columns.label(key).codes for key in keys]
        return _numbered(np.stack(labels, axis=1))

    def groups() -> Ints:
        shape = state.capacities.shapes(capacity_number).of_flavour
        return _numbered(np.stack((shape, _numbered(costs), flavour_fit.tier, domain), axis=1))

    nowhere = np.zeros(len(columns), np.int32)
    domain = columns.remember(("domains", keys), domains) if keys else nowhere
    bucket = flavour_fit.profile.interruption_bucket
    overheads = state.capacities.key(capacity_number)
    key = "groups", overheads, bucket, flavour_fit.asked, keys
    return columns.remember(key, groups), domain


def _numbered(rows: NDArray[Any]) -> Ints:
    """The place of each of `rows` among the distinct ones in ascending order."""
    _, numbers = np.unique(rows, axis=0, return_inverse=True)
    return numbers.reshape(-1).astype(np.int32)


@dataclass(frozen=True)
class Selection:
    """B machines selected for a need."""

    #: [B] int64, rows of the fleet
    rows: Longs
    #: [B] int32, index of the pool
    source: Ints
    #: [B, P] int64, pods of each of `classes` that the machine takes
    pods: Longs
    #: [B] float64, effective dollars an hour
    costs: Floats
    #: [P] int64, the classes that had pending pods
    classes: Longs = field(default_factory=lambda: np.empty(0, np.int64))


def acquire(state: CycleState, free_pools: FreePools, index: int, others: Longs) -> None:
    """Acquire machines for the unplaced pods of need `index`, and place them there.

    Remaining capacity is offered to the pending pods of `others`, classes of the same cluster, but
    not that of an additional need's machines.
    """
    keys = preferred_keys(state, index)
    pools = free_pools.pools(index, keys)
    expected = None
    if state.needs.additional[index]:
        # It is for one pod, or a few, whose cluster is full: more are about to come.
        expected = expected_pods(state, index, parts_by_machine(state, index))
    selection = choose_machines(state, index, others, pools, keys=keys, expected=expected)
    order(state, index, selection)
    state.acquired.setdefault(index, []).extend(selection.rows.tolist())


def preferred_keys(state: CycleState, index: int) -> tuple[str, ...]:
    """The topology key of the need's first soft spread term, if any."""
    preferred = (term.topology_key for term in state.flavour_fit(index).preferred)
    return tuple(key for key in preferred if key != HOSTNAME_LABEL)[:1]


def choose_machines(
    state: CycleState,
    index: int,
    others: Longs,
    pools: Iterable[EligiblePool],
    *,
    keys: tuple[str, ...] = (),
    from_class: int = 0,
    pods_at_most: int = NO_LIMIT,
    machines_at_most: int = NO_LIMIT,
    expected: ExpectedPods | None = None,
) -> Selection:
    """Choose machines from `pools`, one pool after the other, until the need's pods (of its classes
    from `from_class` on, and at most `pods_at_most` of them) are placed. A machine may be larger
    for the pending pods of `others` and a growth of each class, or for those `expected`.

    The machines become unavailable; `state.left` stays as it is. Ties go to the domain of the
    labels `keys` with fewer pods of the need.
    """
    left, availability = state.left.copy(), state.availability(index)
    classes = own = _own_pending(state, index, left, from_class, pods_at_most)
    more, weights = np.empty(0, np.int64), np.empty(0)
    parts: list[Selection] = []
    used: list[CandidatePool] = []
    for number, eligible in enumerate(pools):
        if not left[own].any() or (parts and machines_at_most < NO_LIMIT):
            break
        pool = eligible[0]
        used.append(pool)
        if not has_candidate(*eligible, availability, index, state.classes.columns, left, own):
            continue
        # What other needs lack is looked at only for machines that this one could use.
        if not len(weights):
            further = _further(state, index, others, own, left, expected)
            classes = np.concatenate((own, further))
            more = _expected_growth(state, index, classes, expected)
            weights = weights_of(state.classes.sizes[classes], left[classes])
        pending = PendingPods(
            classes, len(own), weights, _pods_by_domain(state, index, pool, keys, parts), more
        )
        for buffer, count in _selections(
            state, availability, index, eligible, left, pending, machines_at_most
        ):
            costs = pool.costs[buffer.group[:count]]
            source = np.full(count, number, np.int32)
            parts.append(
                Selection(buffer.rows[:count], source, buffer.pods[:count], costs, classes)
            )
    if availability.budget[WITHHELD] and left[own].any():
        state.at_ceiling.add(index)
    selection = _without_redundant(state, availability, classes, parts)
    for pool in used:
        pool.first[:] = pool.starts[:-1]  # redundant machines are available again
    return selection


def _selections(
    state: CycleState,
    availability: FleetAvailability,
    index: int,
    eligible: EligiblePool,
    left: Longs,
    pending: PendingPods,
    machines_at_most: int,
) -> Iterator[tuple[SelectionBuffer, int]]:
    """Batches of machines selected from one pool, each with its count."""
    pool, groups = eligible
    columns = state.classes.columns
    tolerance = 0.0 if _requests_scarce(state, index) else state.settings.price_tolerance
    most, is_full = min(_FIRST_BATCH, machines_at_most), True
    while is_full:
        buffer = selection_buffer(most, columns.sizes, len(pending.classes))
        count = select_machines(
            pool, groups, availability, index, columns, left, pending, tolerance, buffer
        )
        if count:
            yield buffer, count
        is_full = count == most and machines_at_most == NO_LIMIT
        most = min(8 * most, _MACHINES_PER_BATCH)


def _requests_scarce(state: CycleState, index: int) -> bool:
    """Whether the need requests a scarce resource, such as a GPU.

    Its machines are chosen for exactly its pods: few others can use what is left of them, and one
    idle GPU costs more an hour than the small machines that a tolerance avoids.
    """
    asked = np.frombuffer(state.flavour_fit(index).asked, np.bool_)
    return bool((asked & state.columns.scarce).any())


def _expected_growth(
    state: CycleState, index: int, classes: Longs, expected: ExpectedPods | None
) -> Longs:
    """How many more pods of each class to expect; `expected` are these if they are known."""
    if _requests_scarce(state, index):
        return np.zeros_like(classes)
    if expected is not None:
        more = np.zeros(len(state.left), np.int64)
        more[expected.classes] = expected.pods
        return more[classes]
    growth: Longs = np.floor(state.classes.count[classes] * state.settings.growth + 1e-9).astype(
        np.int64
    )
    return growth


def first_servable(state: CycleState, index: int, pools: Sequence[EligiblePool]) -> int:
    """The first of the need's classes of which a machine of the pools could hold a pending pod; the
    end of its classes if there is none.
    """
    its, availability = state.classes.of(index), state.availability(index)
    left, columns = state.left, state.classes.columns

    def is_servable(pod_class: int) -> bool:
        own = np.array([pod_class])
        return any(
            has_candidate(*eligible, availability, index, columns, left, own) for eligible in pools
        )

    pending = (its.start + np.flatnonzero(left[its])).tolist()
    found: int = next(filter(is_servable, pending), its.stop)
    if availability.budget[WITHHELD] and left[its.start : found].any():
        state.at_ceiling.add(index)
    for pool, _ in pools:
        pool.first[:] = pool.starts[:-1]
    return found


def _own_pending(
    state: CycleState, index: int, left: Longs, from_class: int, pods_at_most: int
) -> Longs:
    """The need's classes with pending pods; `left` is cut to those from `from_class` on, and to
    `pods_at_most` of them in total.
    """
    its = state.classes.of(index)
    left[its.start : max(its.start, from_class)] = 0
    left[its] = np.diff(np.minimum(left[its].cumsum(), pods_at_most), prepend=0)
    own: Longs = its.start + np.flatnonzero(left[its])
    return own


def _further(
    state: CycleState,
    index: int,
    others: Longs,
    own: Longs,
    left: Longs,
    expected: ExpectedPods | None,
) -> Longs:
    """The classes beside the need's `own` that its machines may be larger for: those of `others`
    with pending pods, or the `expected` ones, of which none is `left`.
    """
    if expected is None:
        pending: Longs = others[(state.left[others] > 0) & (state.classes.need[others] != index)]
        return pending
    further: Longs = np.setdiff1d(expected.classes, own)
    left[further] = 0
    return further


def order(state: CycleState, index: int, selection: Selection) -> None:
    """Order the machines of `selection` for the need, and place their pods."""
    if not len(selection.rows):
        return
    begin = order_machines(state, index, selection.rows)
    at, place = np.nonzero(selection.pods)
    pod_class, pods = selection.classes[place], selection.pods[at, place]
    state.packing_of(index).record_placements(begin + at, pod_class, pods)
    np.subtract.at(state.left, pod_class, pods)


def order_machines(state: CycleState, index: int, rows: Rows) -> int:
    """Order machines for the need; returns the place of the first in its cluster's packing."""
    packing, priority, fleet = state.packing_of(index), int(state.priorities[index]), state.fleet
    begin = len(packing)
    if len(rows):
        packing.add(rows, fleet.flavour[rows], fleet.last_claimed_by[rows], priority, index)
        state.record_order(index, rows.astype(np.intp))
    return begin


def _pods_by_domain(
    state: CycleState,
    index: int,
    pool: CandidatePool,
    keys: tuple[str, ...],
    parts: Iterable[Selection],
) -> Longs:
    """How many pods of the need each domain [D] of the pool has, those included that go to the
    machines of `parts`, selected for it from other pools.
    """
    pods = np.zeros(len(pool.codes), np.int64)
    if not keys:
        return pods
    packing, its = state.packing_of(index), state.classes.of(index)
    codes = np.stack([state.columns.label(key).codes for key in keys], axis=1)
    by_flavour = np.zeros(len(codes), np.int64)
    placed = packing.placed_of(its)
    np.add.at(by_flavour, packing.flavour[placed.machine], placed.pods)
    for part in parts:
        own = (its.start <= part.classes) & (part.classes < its.stop)
        np.add.at(by_flavour, state.fleet.flavour[part.rows], part.pods[:, own].sum(axis=1))
    for flavour in np.flatnonzero(by_flavour).tolist():
        pods[(pool.codes == codes[flavour]).all(axis=1)] += by_flavour[flavour]
    return pods


def _without_redundant(
    state: CycleState, availability: FleetAvailability, classes: Longs, parts: list[Selection]
) -> Selection:
    """The `parts` as one selection, redundant machines left out."""
    none = Selection(
        np.empty(0, np.int64),
        np.empty(0, np.int32),
        np.empty((0, len(classes)), np.int64),
        np.empty(0),
    )
    parts = parts or [none]
    rows, source = (np.concatenate([getattr(p, n) for p in parts]) for n in ("rows", "source"))
    pods, costs = (np.concatenate([getattr(p, n) for p in parts]) for n in ("pods", "costs"))
    kept = np.ones(len(rows), np.bool_)
    if 1 < len(rows) <= _MAX_REDUNDANCY_CHECK:
        columns = state.classes.columns
        cluster = int(state.demand.cluster[columns.need[classes[0]]])
        capacity = state.capacities.of(cluster)[availability.flavour[rows]]
        free = capacity - pods @ columns.sizes[classes]
        # Try the last pool first, in each the most expensive first, of equals the last selected.
        looked_at = np.lexsort((-np.arange(len(rows)), -costs, -source)).astype(np.int64)
        buffer = SelectionBuffer(rows, np.zeros(len(rows), np.int64), free, pods)
        kept = ~redundant(looked_at, availability, columns, classes, buffer)
        state.unavailable[rows[~kept]] = False
    return Selection(rows[kept], source[kept], pods[kept], costs[kept], classes)
