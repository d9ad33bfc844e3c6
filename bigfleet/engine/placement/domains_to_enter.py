"""In which domains a need with hard topology spread acquires machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bigfleet.engine.kernels.candidate_pool import count_free
from bigfleet.engine.kernels.scoring import NO_LIMIT
from bigfleet.engine.kernels.term_domains import add_rooms
from bigfleet.engine.kernels.topology import TopologyTerms
from bigfleet.engine.placement.free_pools import EligiblePool
from bigfleet.engine.placement.topology_terms import label_keys, terms_of
from bigfleet.engine.snapshot import Longs
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.model.labels import HOSTNAME_LABEL


def domains_to_enter(
    state: CycleState, index: int, pools: Sequence[EligiblePool]
) -> set[tuple[int, ...]] | None:
    """The domains in which to acquire machines, or None for all.

    All of them, unless fewer can hold more pods; the domains of the cluster's machines are always
    included. Computed only for needs with a single term.
    """
    flavour_fit = state.flavour_fit(index)
    # Combinations of terms are not searched.
    if len(flavour_fit.terms) != 1 or len(label_keys(flavour_fit)) != 1:
        return None
    term, packing = flavour_fit.terms[0], state.packing_of(index)
    if term.topology_key == HOSTNAME_LABEL:
        return None
    terms = terms_of(state, index, packing)
    rooms = _rooms(state, index, pools, terms)
    present = {int(code) for code in np.flatnonzero(terms.counts[0])}
    its, classes = state.classes.of(index), state.classes
    pods = int(classes.count[its][~classes.impossible[its]].sum())
    # The cluster's domains hold down the minimum even if nothing fits there.
    chosen = present | {code for code, room in rooms.items() if room > 0}
    best = chosen
    while _placeable(rooms, chosen, term.max_skew, term.min_domains) < pods:
        # Drop the domain with the least room, which limits all others.
        optional = sorted(chosen - present, key=lambda code: (rooms[code], code))
        if not optional:
            break
        chosen = chosen - {optional[0]}
        if _placeable(rooms, chosen, term.max_skew, term.min_domains) > _placeable(
            rooms, best, term.max_skew, term.min_domains
        ):
            best = chosen
    return {(code,) for code in best}


def _rooms(
    state: CycleState, index: int, pools: Sequence[EligiblePool], terms: TopologyTerms
) -> dict[int, int]:
    """How many pods each domain could hold: those that it has, and as many of the largest waiting
    size as it has room for.
    """
    packing, priority = state.packing_of(index), int(state.priorities[index])
    usable = state.flavour_fit(index).accepted[packing.flavour] & packing.present(priority)
    here = np.unique(terms.domain[0, usable]).tolist()
    rooms = {code: int(terms.pods[0, code]) for code in here}
    groups = _free_groups(state, index, pools)
    waiting = {*rooms, *groups.code.tolist()}
    # Else a size without a machine would keep smaller ones out of new domains.
    its = state.classes.of(index)
    for pod_class in (its.start + np.flatnonzero(state.left[its])).tolist():
        more = _more_room(state, index, pod_class, groups, terms)
        for code in [code for code in waiting if more.get(code, 0) > 0]:
            rooms[code] = rooms.get(code, 0) + more[code]
            waiting.remove(code)
        if not waiting:
            break
    return rooms


class _FreeGroups(NamedTuple):
    """G groups of equal machines that a need may acquire."""

    #: [G] int64, code of their domain
    code: Longs
    #: [G, R] int64, what a machine holds
    capacity: Longs
    #: [G] int64, how many there are
    machines: Longs


def _free_groups(state: CycleState, index: int, pools: Sequence[EligiblePool]) -> _FreeGroups:
    nothing = np.empty(0, np.int64)
    parts = [_FreeGroups(nothing, state.classes.sizes[:0], nothing)]
    for pool, eligible in pools:
        free = count_free(pool, eligible, state.availability(index), index)
        its = np.flatnonzero(free)
        parts.append(_FreeGroups(pool.codes[pool.domain[its], 0], pool.capacity[its], free[its]))
    return _FreeGroups(*map(np.concatenate, zip(*parts, strict=True)))


def _more_room(
    state: CycleState, index: int, pod_class: int, groups: _FreeGroups, terms: TopologyTerms
) -> dict[int, int]:
    """How many more pods of a class each domain could hold, by its code."""
    packing, size = state.packing_of(index), state.classes.sizes[pod_class]
    most = 1 if HOSTNAME_LABEL in state.flavour_fit(index).profile.anti_affinity else NO_LIMIT
    there: Longs = np.zeros_like(terms.pods[0])
    priority = int(state.priorities[index])
    classes, machines = state.classes.columns, packing.machines()
    add_rooms(machines, classes, pod_class, priority, most, terms.domain[0], there)
    found = {code: int(there[code]) for code in np.flatnonzero(there).tolist()}
    asked = np.flatnonzero(size)
    pods = (groups.capacity[:, asked] // size[asked]).min(axis=1, initial=most) * groups.machines
    for code, number in zip(groups.code.tolist(), pods.tolist(), strict=True):
        found[code] = found.get(code, 0) + number
    return found


def _placeable(rooms: dict[int, int], codes: set[int], max_skew: int, min_domains: int) -> int:
    """How many pods these domains hold within `max_skew`."""
    if not codes:
        return 0
    held = [rooms.get(code, 0) for code in codes]
    fewest = min(held) if len(held) >= min_domains else 0
    return sum(min(room, fewest + max_skew) for room in held)
