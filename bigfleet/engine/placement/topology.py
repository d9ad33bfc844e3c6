"""Needs with hard topology spread or pod anti-affinity.

As in kube-scheduler, the domains of a term are those of the cluster's Nodes, and a domain may have
`maxSkew` pods more than the global minimum. So machines are acquired where the need has fewest
pods. A domain that is new to the cluster is entered only if that lets the need place more pods:
once the domain exists, its pod count holds down the global minimum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bigfleet.engine.fit.pod_classes import FlavourFit
from bigfleet.engine.kernels.scoring import NO_LIMIT, PlacementLog
from bigfleet.engine.kernels.selection import CandidatePool, count_free
from bigfleet.engine.kernels.term_domains import TermFlavours, add_rooms, count_pods, locate
from bigfleet.engine.kernels.topology import TopologyTerms, least, pack_constrained
from bigfleet.engine.placement.acquire import (
    EligiblePool,
    FreePools,
    choose_machines,
    first_servable,
    order_machines,
)
from bigfleet.engine.placement.growth import (
    NO_PODS,
    ExpectedPods,
    expected_pods,
    parts_by_machine,
)
from bigfleet.engine.snapshot import NONE, Flags, Ints, Longs
from bigfleet.engine.state.cluster_packing import ClusterPacking
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.machine import MachineState

# Codes of a topology key's values.
Domains = frozenset[int]


def term_keys(flavour_fit: FlavourFit) -> tuple[str, ...]:
    """The topology keys of a need's terms."""
    return (*(t.topology_key for t in flavour_fit.terms), *flavour_fit.profile.anti_affinity)


def label_keys(flavour_fit: FlavourFit) -> tuple[str, ...]:
    """The topology keys of a need's terms, kubernetes.io/hostname left out."""
    return tuple(key for key in dict.fromkeys(term_keys(flavour_fit)) if key != HOSTNAME_LABEL)


def terms_of(
    state: CycleState, index: int, packing: ClusterPacking, entered: Domains = frozenset()
) -> TopologyTerms:
    """The terms of need `index`, with its pods as placed now. The `entered` domains of its first
    term count although the cluster has no machine there yet.
    """
    its, known = state.classes.of(index), _limits(state, state.flavour_fit(index))
    terms = len(known.max_skew)
    # Machines without the label share the last domain.
    domains = 1 + max(known.domains, len(packing) if known.cell_of_flavour is None else 0)
    domain = np.empty((terms, len(packing)), np.int32)
    counts = np.zeros((terms, domains), np.bool_)
    pods = np.zeros((terms, domains), np.int64)
    locate(known.flavours, packing.machines(), int(state.priorities[index]), domain, counts)
    counts[0, sorted(entered)] = True
    count_pods(*packing.log, its.start, its.stop, domain, pods)
    cell, cells = _cells(known, packing.flavour)
    return TopologyTerms(
        domain=domain,
        cell=cell,
        cells=cells,
        pods=pods,
        counts=counts,
        max_skew=known.max_skew.copy(),
        min_domains=known.min_domains,
        most=known.most,
    )


class TermLimits(NamedTuple):
    """What the T terms of needs with one fit are, wherever their pods are."""

    flavours: TermFlavours
    #: how many domains a term's topology key has at most, kubernetes.io/hostname left out
    domains: int
    #: [F] int32, the cell of a machine; None if each is one of its own
    cell_of_flavour: Ints | None
    #: how many cells all flavours have
    cells: int
    #: [T] int64
    max_skew: Longs
    #: [T] int64
    min_domains: Longs
    #: [T] int64, pods in a domain
    most: Longs


def _limits(state: CycleState, flavour_fit: FlavourFit) -> TermLimits:
    found = state.term_limits.get(flavour_fit.number)
    if found is None:
        found = state.term_limits[flavour_fit.number] = _find_limits(state, flavour_fit)
    return found


def _find_limits(state: CycleState, flavour_fit: FlavourFit) -> TermLimits:
    apart, keys = flavour_fit.profile.anti_affinity, term_keys(flavour_fit)
    of_flavour = None if HOSTNAME_LABEL in keys else _cell_of_flavour(state, keys)
    skews, no_limit = [term.max_skew for term in flavour_fit.terms], NO_LIMIT // 4
    return TermLimits(
        flavours=_term_flavours(state, flavour_fit),
        domains=max(0 if k == HOSTNAME_LABEL else len(state.columns.label(k).values) for k in keys),
        cell_of_flavour=of_flavour,
        cells=0 if of_flavour is None else int(of_flavour.max(initial=NONE)) + 1,
        max_skew=np.array([*skews, *(no_limit for _ in apart)], np.int64),
        min_domains=np.array([*(t.min_domains for t in flavour_fit.terms), *(1 for _ in apart)]),
        most=np.array([*(no_limit for _ in skews), *(1 for _ in apart)], np.int64),
    )


def _term_flavours(state: CycleState, flavour_fit: FlavourFit) -> TermFlavours:
    """What the need's terms say about all flavours."""
    keys, columns = term_keys(flavour_fit), state.columns

    def domains() -> Ints:
        nowhere = np.full(len(columns), NONE, np.int32)
        return np.stack([nowhere if k == HOSTNAME_LABEL else columns.label(k).codes for k in keys])

    return TermFlavours(
        columns.remember(("term domains", keys), domains),
        np.array([key == HOSTNAME_LABEL for key in keys], np.bool_),
        columns.remember(
            ("term nodes", flavour_fit.profile.fingerprint), lambda: _nodes(state, flavour_fit)
        ),
    )


def _cell_of_flavour(state: CycleState, keys: tuple[str, ...]) -> Ints:
    """[F] int32, equal for flavours with equal domains."""
    columns = state.columns

    def cells() -> Ints:
        codes = np.stack([columns.label(key).codes for key in keys], axis=1)
        _, cell = np.unique(codes, axis=0, return_inverse=True)
        return cell.reshape(-1).astype(np.int32)

    return columns.remember(("cells", keys), cells)


def _cells(known: TermLimits, flavour: Ints) -> tuple[Ints, int]:
    """The cell of each machine with these flavours [M], and how many cells there are."""
    if known.cell_of_flavour is None:
        return np.arange(len(flavour), dtype=np.int32), len(flavour)
    cell = known.cell_of_flavour[flavour]
    if known.cells > len(cell):
        found, places = np.unique(cell, return_inverse=True)
        return places.astype(np.int32), len(found)
    return cell, known.cells


def _nodes(state: CycleState, flavour_fit: FlavourFit) -> Flags:
    """For each term the flavours [T, F] of machines whose domains count for the global minimum."""
    profile, matcher = flavour_fit.profile, state.matcher
    affine = matcher.meeting(profile.requirements, profile.alternatives)
    untainted = matcher.tolerating(profile.tolerations)
    nodes = []
    for term in flavour_fit.terms:
        its = np.ones(len(affine), np.bool_)
        if not term.ignores_node_affinity:
            its &= affine
        if term.honors_node_taints:
            its &= untainted
        nodes.append(its)
    return np.stack([*nodes, *(affine for _ in profile.anti_affinity)])


def place_constrained(state: CycleState, index: int, entered: Domains = frozenset()) -> None:
    """Place the need's unplaced pods on its cluster's machines, leaving the `entered` domains their
    share.

    Only what finds no place elsewhere goes to the machines that needs which are placed later
    claimed in the last decision, and to those that needs of a lower priority claimed only what
    finds none on them either.
    """
    packing = state.packing_of(index)
    if not state.lacks(index) or not len(packing):
        return
    terms, later = terms_of(state, index, packing, entered), _claimed_by_later(state, index)
    lower = later & (state.priorities[packing.last_claimed_by] < state.priorities[index])
    for withheld in (later, lower) if (later & ~lower).any() else (lower,):
        if withheld.any() and state.lacks(index):
            with packing.only(~withheld):
                _pack(state, index, terms)
    if _pack(state, index, terms) and index in state.running:
        _place_running(state, index)


def _claimed_by_later(state: CycleState, index: int) -> Flags:
    """The machines of its cluster [M] that needs which are placed later claimed last."""
    # Pods that fit elsewhere as well would make those needs short: they would acquire machines,
    # over which this one would spread in turn.
    claimant, turns = state.packing_of(index).last_claimed_by, state.turns
    later: Flags = (claimant != NONE) & (turns[claimant] > turns[index])
    return later


def _place_running(state: CycleState, index: int) -> None:
    """Place as many of the need's unplaced pods as are known to run on machines in service, however
    they spread: a domain that is new holds back only pods that have yet to start.
    """
    packing, its, fleet = state.packing_of(index), state.classes.of(index), state.fleet
    before, placed = state.left[its].copy(), int(packing.placed_of(its).pods.sum())
    now = np.diff(np.minimum(before.cumsum(), max(0, state.running[index] - placed)), prepend=0)
    if not now.any():
        return
    serving = (packing.rows != NONE) & (fleet.cluster[packing.rows] == state.cluster_of(index))
    serving &= fleet.state[packing.rows] == MachineState.CONFIGURED
    terms = terms_of(state, index, packing)
    terms.max_skew[:] = NO_LIMIT // 4
    state.left[its] = now
    with packing.only(serving):
        _pack(state, index, terms)
    if (state.left[its] < now).any():
        state.beyond_skew.add(index)
    state.left[its] += before - now


def _pack(state: CycleState, index: int, terms: TopologyTerms) -> int:
    """Place the need's unplaced pods on its cluster's machines within its `terms`; returns how many
    are left.
    """
    packing, its = state.packing_of(index), state.classes.of(index)
    order = np.arange(its.start, its.stop, dtype=np.int64)
    machines, classes = packing.machines(), state.classes.columns
    priority = int(state.priorities[index])

    def kernel(log: PlacementLog, length: int) -> int:
        return pack_constrained(
            machines,
            classes,
            terms,
            state.left,
            order,
            priority,
            packing.consolidating,
            log,
            length,
        )

    before, left = -1, int(state.left[its].sum())
    while left and left != before:
        # Small pods may raise a term's minimum, which makes room for large ones.
        packing.write(order, kernel)
        before, left = left, int(state.left[its].sum())
    return left


def acquire_constrained(state: CycleState, free_pools: FreePools, index: int) -> None:
    """Acquire machines one by one, where the need has fewest pods."""
    pools = free_pools.pools(index, label_keys(state.flavour_fit(index)))
    take_constrained(state, index, pools, record_acquired=True)


def take_constrained(
    state: CycleState, index: int, pools: Sequence[EligiblePool], *, record_acquired: bool
) -> list[int]:
    """Order machines from `pools`, whose domains are by `label_keys`, until all pods of the need
    are placed or no machine helps. Returns their rows.
    """
    rows: list[int] = []
    worthwhile = _worthwhile(state, index, pools)
    entered = frozenset(code for (code,) in worthwhile or ())
    inside = {
        codes: [_inside(pool, eligible, codes) for pool, eligible in pools]
        for codes in _domains(pools)
        if worthwhile is None or codes in worthwhile
    }
    expected = _expected(state, index, len(inside)) if inside else NO_PODS
    while state.lacks(index):
        chosen = _next(state, index, inside, entered, expected)
        if chosen is None:
            break
        before = int(state.left[state.classes.of(index)].sum())
        place_constrained(state, index, entered)
        # Its pods may have places on others: headroom that has been kept from the need since it was
        # placed was a domain without pods, and held them back.
        if chosen in state.unused_orders(index):
            state.give_back(index, [chosen])
        else:
            rows.append(chosen)
            if record_acquired:
                state.acquired.setdefault(index, []).append(chosen)
        if int(state.left[state.classes.of(index)].sum()) == before:
            break
    place_constrained(state, index)  # fill the shares of domains that could not be entered
    return rows


def _next(
    state: CycleState,
    index: int,
    inside: Mapping[tuple[int, ...], Sequence[EligiblePool]],
    entered: Domains,
    expected: ExpectedPods,
) -> int | None:
    """Order one machine in the domains where the need has fewest pods; returns its row, or None.
    `inside` are the machines by the codes of their domains; it may be larger for `expected` pods.
    """
    flavour_fit, packing = state.flavour_fit(index), state.packing_of(index)
    terms = terms_of(state, index, packing, entered)
    allowed = {codes: _pods_in(flavour_fit, terms, codes) for codes in inside}
    for pods, codes in sorted((p, c) for c, p in allowed.items() if p is not None):
        # Else a size that waits would keep smaller ones from getting machines.
        first = first_servable(state, index, inside[codes])
        if first == state.classes.of(index).stop:
            continue
        most = _fair_share(state, index, terms, pods, len(allowed))
        selection = choose_machines(
            state,
            index,
            np.empty(0, np.int64),
            inside[codes],
            from_class=first,
            pods_at_most=most,
            machines_at_most=1,
            expected=expected,
        )
        if len(selection.rows):
            order_machines(state, index, selection.rows)
            return int(selection.rows[0])
    return None


def _expected(state: CycleState, index: int, domains: int) -> ExpectedPods:
    """The pods that a machine for the need may be sized for beside its own."""
    if state.needs.apart[index]:
        return expected_pods(state, index, parts_by_machine(state, index))
    # A need that spreads over machines takes many, and must not get each sized for growth.
    if HOSTNAME_LABEL in term_keys(state.flavour_fit(index)):
        return NO_PODS
    return expected_pods(state, index, domains)


def _domains(pools: Sequence[EligiblePool]) -> set[tuple[int, ...]]:
    return {tuple(codes) for pool, _ in pools for codes in pool.codes.tolist()}


def _inside(pool: CandidatePool, eligible: Flags, codes: tuple[int, ...]) -> EligiblePool:
    inside = (pool.codes == np.array(codes, pool.codes.dtype)).all(axis=1)
    return pool, eligible & inside[pool.domain]


def _pods_in(flavour_fit: FlavourFit, terms: TopologyTerms, codes: tuple[int, ...]) -> int | None:
    """How many pods the need has in the domains of a new machine; None if a term is at its limit.

    A domain that is new to the cluster has no pods, which makes the minimum of its term 0.
    """
    total, keys = 0, label_keys(flavour_fit)
    for term, key in enumerate(term_keys(flavour_fit)):
        if key == HOSTNAME_LABEL:
            continue
        code = codes[keys.index(key)]
        known = code < terms.pods.shape[1] - 1
        pods = int(terms.pods[term, code]) if known else 0
        fewest = least(terms, term) if known and terms.counts[term, code] else 0
        if pods >= fewest + int(terms.max_skew[term]) or pods >= int(terms.most[term]):
            return None
        total += pods
    return total


def _fair_share(
    state: CycleState, index: int, terms: TopologyTerms, pods: int, domains: int
) -> int:
    """How many pods to choose a machine for: an even share for its domains."""
    left = int(state.left[state.classes.of(index)].sum())
    placed = int(terms.pods[0].sum())
    share = max(1, -(-(placed + left) // max(1, domains)) - pods)
    for term, key in enumerate(term_keys(state.flavour_fit(index))):
        share = min(share, int(terms.most[term]))
        if key == HOSTNAME_LABEL and placed:
            share = min(share, max(1, least(terms, term) + int(terms.max_skew[term])))
    return max(1, min(share, left))


def _worthwhile(
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
