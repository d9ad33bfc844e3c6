"""The machines that a gang might use, by domain, and the choice of its domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bigfleet.engine.kernels.gang_domains import choose
from bigfleet.engine.kernels.gang_request import (
    SOURCE_ACQUIRABLE,
    GangPool,
    recount,
    request_of,
)
from bigfleet.engine.placement.free_pools import EligiblePool, FreePools
from bigfleet.engine.snapshot import NONE, Flags, Ints, Longs, Rows
from bigfleet.engine.state.cluster_packing import ClusterPacking
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.model.machine import MachineState

# Pools of machines, each with their source.
FromSource = Sequence[tuple[EligiblePool, int]]


class DomainChoice(NamedTuple):
    """The domain chosen for a gang."""

    #: its code; NONE if no machine has the label
    domain: int
    #: the whole gang fits
    whole: bool


def same_key(state: CycleState, index: int) -> str:
    """The topology key of a gang's domain."""
    return str(state.flavour_fit(index).profile.same_key)


def usable_machines(state: CycleState, index: int) -> Flags:
    """Which machines of its cluster a gang may use."""
    packing = state.packing_of(index)
    accepted = state.flavour_fit(index).accepted[packing.flavour]
    return accepted & packing.present(int(state.priorities[index]))


def by_domain(packing: ClusterPacking, key: str, codes: Ints) -> tuple[Longs, Longs]:
    """A cluster's machines by their domain of `key`, whose `codes` [F] these are, in each in keep
    order; and for each of them the place after the last one in its domain.
    """
    order = packing.in_order(key, lambda: codes[packing.flavour])
    its = codes[packing.flavour[order]]
    return order, np.searchsorted(its, its, "right")


def choose_domain(
    state: CycleState,
    free_pools: FreePools,
    index: int,
    kept: int = NONE,
    further: FromSource = (),
) -> DomainChoice:
    """The best domain for the gang's unplaced pods, with the machines that it may acquire, and the
    `further` ones; `kept` is reserved for it.
    """
    packing, its = state.packing_of(index), state.classes.of(index)
    key = same_key(state, index)
    codes = state.columns.label(key).codes
    if further:
        free = _acquirable(state, free_pools, index)
        pool = _gang_pool(state, _domains(state, key), [*free, *further])
    else:
        pool = free_gang_pool(state, free_pools, index)
    classes = state.classes.columns
    request = request_of(
        index, kept, int(state.priorities[index]), its.start, its.stop, codes,
        *by_domain(packing, key, codes), classes, state.left, pool,
    )  # fmt: skip
    availability = state.availability(index)
    return DomainChoice(
        *choose(request, pool, packing.machines(), classes, availability, state.left)
    )


def free_gang_pool(state: CycleState, free_pools: FreePools, index: int) -> GangPool:
    """The machines that the gang may acquire now, by domain."""
    key = same_key(state, index)

    def compute() -> _FreeGangPool:
        pools = _acquirable(state, free_pools, index)
        return _FreeGangPool(state, _gang_pool(state, _domains(state, key), pools))

    name = key, index in state.not_acquiring
    return free_pools.remember(index, name, compute).updated()


def empty_pool(state: CycleState) -> GangPool:
    """A pool without domains."""
    return _gang_pool(state, 0, ())


class _FreeGangPool:
    """Machines that belong to no cluster. Those of each group that are free are counted again after
    some of them have been ordered or given back.
    """

    def __init__(self, state: CycleState, pool: GangPool) -> None:
        self._state, self._pool = state, pool
        self._seen = len(state.changes)
        #: by whether it is idle, and by flavour, the group of a machine
        self._group_of = np.full((2, len(state.columns)), NONE, np.int32)
        group = np.repeat(np.arange(len(pool.free)), np.diff(pool.begin))
        self._group_of[self._is_idle(pool.rows), state.fleet.flavour[pool.rows]] = group

    def _is_idle(self, rows: Rows) -> Ints:
        idle: Flags = self._state.fleet.state[rows] == MachineState.IDLE
        return idle.astype(np.int32)

    def updated(self) -> GangPool:
        """The pool as it is now."""
        state = self._state
        if self._seen < len(state.changes):
            rows = np.concatenate(state.changes[self._seen :])
            self._seen = len(state.changes)
            rows = rows[state.fleet.acquirable[rows]]
            groups = np.unique(self._group_of[self._is_idle(rows), state.fleet.flavour[rows]])
            recount(
                self._pool,
                groups[groups != NONE].astype(np.int64),
                state.unavailable,
                state.free_for_some,
            )
        return self._pool


def _acquirable(state: CycleState, free_pools: FreePools, index: int) -> FromSource:
    if index in state.not_acquiring:
        return ()
    pools = free_pools.pools(index, (same_key(state, index),))
    return [(each, SOURCE_ACQUIRABLE) for each in pools]


def _domains(state: CycleState, key: str) -> int:
    return len(state.columns.label(key).values)


def _gang_pool(state: CycleState, domains: int, pools: FromSource) -> GangPool:
    """The eligible groups of `pools` by their domain, in each in the order given."""
    nothing = np.empty(0, np.int64)
    parts = [_Groups(nothing, nothing, nothing, nothing, nothing)]
    before = 0
    for (pool, eligible), source in pools:
        domain = pool.codes[pool.domain, 0]
        its = np.flatnonzero(eligible & (domain != NONE))
        parts.append(
            _Groups(
                domain[its].astype(np.int64),
                pool.starts[its] + before,
                np.diff(pool.starts)[its],
                np.full(len(its), source),
                its,
            )
        )
        before += len(pool.rows)
    joined = _Groups(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    order = np.argsort(joined.domain, kind="stable")
    sizes = joined.size[order]
    begin = np.append(0, sizes.cumsum())
    places = np.arange(begin[-1]) + np.repeat(joined.start[order] - begin[:-1], sizes)
    rows = np.concatenate([nothing, *(pool.rows for (pool, _), _ in pools)])[places]
    none = np.empty((0, state.columns.allocatable.shape[1]), np.int64)
    capacity = [
        pool.capacity[part.group] for ((pool, _), _), part in zip(pools, parts[1:], strict=True)
    ]
    number = np.bincount(joined.domain, minlength=domains)
    starts = np.append(0, number.cumsum())
    special = np.flatnonzero(state.free_for_some[rows])
    special_begin = np.searchsorted(special, begin)
    found = GangPool(
        start=starts,
        begin=begin,
        rows=rows,
        capacity=np.concatenate([none, *capacity])[order],
        source=joined.source[order].astype(np.uint8),
        domain=joined.domain[order],
        free=np.zeros(len(order), np.int64),
        there=np.diff(special_begin[starts]),
        special_begin=special_begin,
        special=rows[special],
        most=int(number.max(initial=0)),
        largest=int(np.diff(begin[starts]).max(initial=0)),
    )
    recount(found, np.arange(len(order)), state.unavailable, state.free_for_some)
    return found


class _Groups(NamedTuple):
    """Groups of interchangeable machines, as columns [E] int64."""

    domain: Longs
    #: place of its first machine among the rows of all pools, one behind the other
    start: Longs
    size: Longs
    source: Longs
    #: number of the group in its pool
    group: Longs
