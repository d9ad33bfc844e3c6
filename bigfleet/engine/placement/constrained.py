"""Needs with hard topology spread or pod anti-affinity.

As in kube-scheduler, the domains of a term are those of the cluster's Nodes, and a domain may have
`maxSkew` pods more than the global minimum. So machines are acquired where the need has fewest
pods. A domain that is new to the cluster is entered only if that lets the need place more pods:
once the domain exists, its pod count holds down the global minimum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bigfleet.engine.fit.pod_classes import FlavourFit
from bigfleet.engine.kernels.candidate_pool import CandidatePool
from bigfleet.engine.kernels.scoring import NO_LIMIT, PlacementLog
from bigfleet.engine.kernels.topology import TopologyTerms, least, pack_constrained
from bigfleet.engine.placement.acquire import order_machines
from bigfleet.engine.placement.domains_to_enter import domains_to_enter
from bigfleet.engine.placement.free_pools import EligiblePool, FreePools
from bigfleet.engine.placement.growth import NO_PODS, ExpectedPods, expected_pods, parts_by_machine
from bigfleet.engine.placement.selection import choose_machines, first_servable
from bigfleet.engine.placement.topology_terms import Domains, label_keys, term_keys, terms_of
from bigfleet.engine.snapshot import NONE, Flags
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.machine import MachineState


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
    before, placed = state.left[its].copy(), int(packing.placements.of(its).pods.sum())
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
    worthwhile = domains_to_enter(state, index, pools)
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
