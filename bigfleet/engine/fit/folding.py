"""Folding of the demand: gangs that fit on one machine become plain needs.

A gang that fits on one machine needs no topology domain: any machine with room holds all of it. So
the small gangs of one cluster and profile fold into one plain need, each of whose pods is a whole
gang. A gang that fits on no machine keeps its Same requirement.

Whether a gang folds depends on the current machines, and is decided in each cycle. The machine
that could hold it may be in use: a gang that waits for one in vain, or that has machines as a gang,
is to stay a gang. One that must share a host folds whoever uses the machines that could hold it,
since it is of no use on two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bigfleet.engine.columns import columns_of
from bigfleet.engine.fit.capacity import Capacities
from bigfleet.engine.fit.matching import Matcher
from bigfleet.engine.fit.pod_classes import requests_of
from bigfleet.engine.kernels.folding import (
    GangTotals,
    Hosts,
    fit_on_one,
    lowest_priorities,
    number_rows,
)
from bigfleet.engine.need_columns import NeedColumns, need_columns_of
from bigfleet.engine.snapshot import (
    IN_SERVICE,
    NONE,
    Demand,
    Flags,
    Fleet,
    Ints,
    Longs,
    Rows,
    in_states,
)
from bigfleet.model.group import Group
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need, NeedKey
from bigfleet.model.resources import MAX_MACHINE_UNITS

# Machines that are created or drained were chosen or will be free: gangs must not unfold meanwhile.
_UNCLAIMED_STATES = (
    MachineState.IDLE,
    MachineState.SPECULATIVE,
    MachineState.CREATING,
    MachineState.DRAINING,
)

# Twice what a machine can have.
_MOST_UNITS = 2 * MAX_MACHINE_UNITS


@dataclass(frozen=True)
class FoldedDemand:
    """A demand with small gangs folded."""

    demand: Demand
    #: [N] by need of the original demand: index of the need that includes it
    served_by: Rows


def fold(
    fleet: Fleet,
    demand: Demand,
    unfolded: Collection[NeedKey] = frozenset(),
    served_as_gangs: Callable[[], Flags] | None = None,
) -> FoldedDemand:
    """`demand` with each gang folded that a single machine could hold, but for the `unfolded` ones
    and those of the needs [N] that are `served_as_gangs`.

    A folded need takes the position of its first gang, and has no number.
    """
    asked = need_columns_of(demand.needs)
    if not asked.gang.any():
        return FoldedDemand(replace(demand, needs=asked), np.arange(len(asked)))
    sizes = _gang_sizes(asked, demand.cluster)
    folds = _fit_on_one_machine(fleet, demand, asked, sizes)[sizes.number]
    folds &= ~_stay_gangs(fleet, demand, asked, sizes, unfolded)
    if served_as_gangs is not None:
        folds &= ~served_as_gangs()[sizes.gangs]
    number, gangs = sizes.number[folds], sizes.gangs[folds]
    of_need, first = number_rows(sizes.folded[number][:, None])
    # The first of the needs that become one stands for all of them.
    leader = np.arange(len(asked))
    leader[gangs] = gangs[first][of_need]
    kept = np.flatnonzero(leader == np.arange(len(asked)))
    needs = {index: asked[index] for index in kept.tolist()}
    needs |= _folded_needs(asked, sizes, number, gangs[first])
    served_demand = replace(
        demand,
        needs=NeedColumns(needs.values(), asked),
        cluster=demand.cluster[kept],
        number=_numbers(demand, gangs[first])[kept],
    )
    return FoldedDemand(served_demand, np.searchsorted(kept, leader))


def _numbers(demand: Demand, folded: Rows) -> Ints:
    """The numbers of the needs, those that become folded ones without."""
    unnumbered = np.full(len(demand.needs), NONE, np.int32)
    numbers = unnumbered if demand.number is None else demand.number.copy()
    numbers[folded] = NONE
    return numbers


def _stay_gangs(
    fleet: Fleet,
    demand: Demand,
    asked: NeedColumns,
    sizes: _GangSizes,
    unfolded: Collection[NeedKey],
) -> Flags:
    """Which of the gangs [G] are among `unfolded`."""
    # Few profiles have such gangs, and a key takes longer to make than a profile to look up.
    fingerprints = {key.fingerprint for key in unfolded}
    profiles = np.array([each.fingerprint in fingerprints for each in asked.profiles], np.bool_)
    stay: Flags = profiles[asked.profile[sizes.gangs]]
    for at in np.flatnonzero(stay).tolist():
        gang = int(sizes.gangs[at])
        cluster = fleet.clusters[int(demand.cluster[gang])]
        stay[at] = NeedKey(cluster, *asked[gang].key) in unfolded
    return stay


class _GangSizes(NamedTuple):
    """G gangs, in the demand's order, which have U distinct sizes, clusters and profiles."""

    #: [G] indices of the needs
    gangs: Rows
    #: [G] the number of its distinct kind
    number: Longs
    #: [U] one of the gangs of each kind
    example: Rows
    #: [U, Q] what all pods of a gang request, by resource of the needs
    total: Longs
    #: [U] equal for those that fold into one need
    folded: Longs


def _gang_sizes(asked: NeedColumns, cluster: Ints) -> _GangSizes:
    """The gangs of `asked` that a machine might hold, and what they request."""
    pods = _sums(asked.pods, asked.start)
    # As floating-point numbers, which cannot overflow; more than this fits on no machine.
    most = (asked.amounts * asked.pods[:, None].astype(np.float64)).max(axis=1, initial=0.0)
    too_large = _sums((most > _MOST_UNITS).astype(np.int64), asked.start) > 0
    gangs = np.flatnonzero(asked.gang & ~(asked.apart & (pods > 1)) & ~too_large)
    total = _sums(asked.amounts * asked.pods[:, None], asked.start)[gangs]
    profile = asked.profile[gangs].astype(np.int64)
    number, first = number_rows(
        np.ascontiguousarray(np.column_stack((cluster[gangs], profile, total)))
    )
    folded = np.zeros(len(asked.profiles), np.int64)
    keys: dict[tuple[str, Group], int] = {}
    for each in np.unique(profile).tolist():
        constraints, group = asked.folded.profile(each, asked.profiles[each])
        folded[each] = keys.setdefault((constraints.fingerprint, group), len(keys))
    example = gangs[first]
    return _GangSizes(
        gangs, number, example, total[first],
        cluster[example].astype(np.int64) * len(keys) + folded[profile[first]],
    )  # fmt: skip


def _sums(rows: Longs, start: Longs) -> Longs:
    """The sums of `rows` [S, ...] from each `start` [N + 1] to the next."""
    total = np.zeros((len(rows) + 1, *rows.shape[1:]), np.int64)
    np.cumsum(rows, axis=0, out=total[1:])
    sums: Longs = total[start[1:]] - total[start[:-1]]
    return sums


def _fit_on_one_machine(
    fleet: Fleet, demand: Demand, asked: NeedColumns, sizes: _GangSizes
) -> Flags:
    """Which kinds of gangs [U] a single machine that may serve them could hold."""
    if not len(sizes.example):
        return np.zeros(0, np.bool_)
    columns = columns_of(fleet.flavours)
    matcher = Matcher(columns)
    capacities = Capacities(columns, matcher, demand)
    profiles, row = np.unique(asked.profile[sizes.example], return_inverse=True)
    conditions = [asked.folded.profile(n, asked.profiles[n])[0] for n in profiles.tolist()]
    accepted = columns.remember_last(
        ("folding", tuple(each.fingerprint for each in conditions)),
        lambda: np.stack([matcher.accepting(each) for each in conditions]),
    )
    total, unknown = requests_of(asked.resources, sizes.total, columns)
    of_one_host = np.array([asked.profiles[n].same_key == HOSTNAME_LABEL for n in profiles])[row]
    hosts, fits = _hosts(fleet, len(columns)), np.zeros(len(row), np.bool_)
    present = np.zeros(len(columns), np.bool_)
    present[fleet.flavour] = True
    cluster = demand.cluster[sizes.example]
    number = capacities.numbers(cluster)
    for matrix in np.unique(number).tolist():
        for some, theirs in (
            (~of_one_host, hosts),
            (of_one_host, hosts._replace(unclaimed=present)),
        ):
            its = np.flatnonzero((number == matrix) & ~unknown & some)
            if not len(its):
                continue
            its = its[np.argsort(cluster[its], kind="stable")]
            gangs = GangTotals(
                cluster[its].astype(np.int64),
                row[its],
                asked.priority[sizes.example[its]],
                total[its],
            )
            fits[its] = fit_on_one(
                gangs, theirs, accepted, capacities.matrix(matrix), capacities.shapes(matrix).rows
            )
    return fits


def _hosts(fleet: Fleet, flavours: int) -> Hosts:
    bound = np.flatnonzero(in_states(fleet.state, IN_SERVICE))
    bound = bound[np.argsort(fleet.cluster[bound], kind="stable")]
    start = np.searchsorted(fleet.cluster[bound], np.arange(len(fleet.clusters) + 1))
    unclaimed = np.zeros(flavours, np.bool_)
    unclaimed[fleet.flavour[in_states(fleet.state, _UNCLAIMED_STATES)]] = True
    # A higher priority may preempt a machine. Without these, a hundred small gangs would stay
    # unfolded, and each preempt one.
    working = fleet.state == MachineState.CONFIGURED
    lowest = lowest_priorities(fleet.flavour, fleet.priority, working, flavours)
    return Hosts(fleet.flavour[bound], start, unclaimed, lowest)


def _folded_needs(
    asked: NeedColumns, sizes: _GangSizes, number: Longs, leaders: Rows
) -> dict[int, Need]:
    """By first need, the plain needs that the gangs of these `number`s become; each of their pods
    is a whole gang.
    """
    counts = np.bincount(number, minlength=len(sizes.example))
    leader_of = np.zeros(int(sizes.folded.max(initial=0)) + 1, np.int64)
    leader_of[sizes.folded[sizes.number[np.searchsorted(sizes.gangs, leaders)]]] = leaders
    kinds = np.flatnonzero(counts)
    kinds = kinds[np.argsort(sizes.folded[kinds], kind="stable")]
    borders = np.flatnonzero(np.diff(sizes.folded[kinds])) + 1
    found = {}
    for its in np.split(kinds, borders) if len(kinds) else ():
        index = int(leader_of[sizes.folded[its[0]]])
        first = asked[index]
        constraints, group = asked.folded.profile(int(asked.profile[index]), first.profile)
        found[index] = asked.folded.need(
            constraints, group, first.priority_ceiling, sizes.total[its], counts[its],
            asked.resources,
        )  # fmt: skip
    asked.folded.forget_unused()
    return found
