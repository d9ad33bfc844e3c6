"""Which machines of some pools a need acquires or preempts for its pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from bigfleet.engine.columns import PODS_COLUMN
from bigfleet.engine.kernels.candidate_pool import (
    WITHHELD,
    CandidatePool,
    FleetAvailability,
    SelectionBuffer,
    has_candidate,
    selection_buffer,
)
from bigfleet.engine.kernels.redundancy import redundant
from bigfleet.engine.kernels.scoring import NO_LIMIT
from bigfleet.engine.kernels.selection import PendingPods, select_machines
from bigfleet.engine.placement.free_pools import EligiblePool
from bigfleet.engine.placement.growth import ExpectedPods
from bigfleet.engine.snapshot import Floats, Ints, Longs
from bigfleet.engine.state.cycle_state import CycleState

# Bound the arrays of a selection: most needs acquire few machines.
_FIRST_BATCH = 16
_MACHINES_PER_BATCH = 1024
# In larger selections, redundant machines are a negligible part.
_MAX_REDUNDANCY_CHECK = 256
# Pod slots are rarely why a machine is acquired.
_SLOT_WORTH = 1e-3


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
    left, availability = state.left, state.availability(index)
    # A copy of all classes would take longer than to find that no machine is free.
    touched = _touched(state, index, others, expected)
    before = left[touched]
    classes = own = _own_pending(state, index, from_class, pods_at_most)
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
            further = _further(state, index, others, own, expected)
            classes = np.concatenate((own, further))
            more = _expected_growth(state, index, classes, expected)
            weights = _weights_of(state.classes.sizes[classes], left[classes])
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
    left[touched] = before
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


def _weights_of(sizes: Longs, left: Longs) -> Floats:
    """The value of one pod of each class: its shares of the total requests, over all resources."""
    total = (sizes * left[:, None].astype(np.float64)).sum(axis=0)
    asked = total > 0
    parts = sizes[:, asked] / total[asked]
    parts[:, asked[:PODS_COLUMN].sum() : asked[: PODS_COLUMN + 1].sum()] *= _SLOT_WORTH
    weights: Floats = parts.sum(axis=1)
    return weights


def _touched(state: CycleState, index: int, others: Longs, expected: ExpectedPods | None) -> Longs:
    """The classes of which a selection for the need may count fewer pods as left."""
    its = state.classes.of(index)
    further = others if expected is None else expected.classes
    return np.concatenate((np.arange(its.start, its.stop), further))


def _own_pending(state: CycleState, index: int, from_class: int, pods_at_most: int) -> Longs:
    """The need's classes with pending pods; `state.left` is cut to those from `from_class` on, and
    to `pods_at_most` of them in total.
    """
    its, left = state.classes.of(index), state.left
    left[its.start : max(its.start, from_class)] = 0
    if pods_at_most < NO_LIMIT:
        left[its] = np.diff(np.minimum(left[its].cumsum(), pods_at_most), prepend=0)
    own: Longs = its.start + np.flatnonzero(left[its])
    return own


def _further(
    state: CycleState,
    index: int,
    others: Longs,
    own: Longs,
    expected: ExpectedPods | None,
) -> Longs:
    """The classes beside the need's `own` that its machines may be larger for: those of `others`
    with pending pods, or the `expected` ones, of which none is left.
    """
    if expected is None:
        pending: Longs = others[(state.left[others] > 0) & (state.classes.need[others] != index)]
        return pending
    further: Longs = np.setdiff1d(expected.classes, own)
    state.left[further] = 0
    return further


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
    placed = packing.placements.of(its)
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
    if not parts:
        nothing = np.empty(0, np.int64)
        return Selection(nothing, nothing.astype(np.int32), nothing.reshape(0, 0), np.empty(0))
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
