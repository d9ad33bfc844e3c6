"""Pools of the machines that belong to no cluster, as a need sees them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.fit.cost import TIERS
from bigfleet.engine.fit.pod_classes import FlavourFit
from bigfleet.engine.kernels.candidate_pool import CandidatePool, group_rows
from bigfleet.engine.snapshot import ACQUIRABLE, Flags, Floats, Ints, Rows
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.model.machine import MachineState

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
