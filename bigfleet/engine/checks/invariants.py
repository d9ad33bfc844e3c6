"""Invariants of every decision.

Only the predicates on a single machine are shared with the code that decides.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from bigfleet.engine.decision import EVENT_OF, Action, ActionType, Decision
from bigfleet.engine.fit.matching import accepts, accepts_machine, hard_spread, tolerates
from bigfleet.engine.snapshot import ACQUIRABLE, NONE, Demand, Fleet
from bigfleet.model.group import Additional
from bigfleet.model.machine import TRANSITIONS, MachineState
from bigfleet.model.need import HOSTNAME_LABEL, Size, sizes_of

_ORDER = [*EVENT_OF]
_ACQUIRING = (ActionType.BOOTSTRAP, ActionType.PROVISION)
_WITH_NODE = (MachineState.CONFIGURING, MachineState.CONFIGURED)
_DRAINING = (ActionType.PREEMPT, ActionType.RECLAIM)


def violations(fleet: Fleet, demand: Demand, decision: Decision) -> Iterator[str]:
    """One message for each invariant that `decision` breaks."""
    yield from _impossible_actions(fleet, demand, decision)
    yield from _wrong_order(decision)
    yield from _false_supply(fleet, demand, decision)
    yield from _overfull(fleet, demand, decision)
    yield from _wrong_totals(demand, decision)
    yield from _unused_orders(decision)
    yield from _unconfirmed_reclaims(fleet, decision)
    for need in range(len(demand.needs)):
        yield from _misplaced(fleet, demand, decision, need)
        yield from _needless_evictions(fleet, demand, decision, need)


def _impossible_actions(fleet: Fleet, demand: Demand, decision: Decision) -> Iterator[str]:
    for row, times in Counter(action.row for action in decision.actions).items():
        if times > 1:
            yield f"row {row} has {times} actions"
    for action in decision.actions:
        state = MachineState(int(fleet.state[action.row]))
        if (state, EVENT_OF[action.type]) not in TRANSITIONS:
            yield f"row {action.row} is {state.name}, {action.type.value} is not allowed"
        yield from _wrong_owner(fleet, demand, decision, action)


def _wrong_owner(fleet: Fleet, demand: Demand, decision: Decision, action: Action) -> Iterator[str]:
    holder, cluster = int(decision.claimed_by[action.row]), int(fleet.cluster[action.row])
    if action.need != holder:
        what = f"{action.type.value} of row {action.row} is for need {action.need}"
        yield f"{what}, but need {holder} claims it"
    if action.need == NONE and action.type in (*_ACQUIRING, ActionType.PREEMPT):
        yield f"{action.type.value} of row {action.row} has no requester"
    if action.type in _DRAINING:
        if cluster not in demand.reachable:
            yield f"row {action.row} is taken from an unreachable cluster"
        if action.need != NONE and cluster == demand.cluster[action.need]:
            yield f"row {action.row} is drained for need {action.need} of its own cluster"


def _wrong_order(decision: Decision) -> Iterator[str]:
    def place(action: Action) -> tuple[int, bool, int]:
        phase = 0 if action.type in _ACQUIRING else _ORDER.index(action.type)
        return phase, action.need == NONE, action.need

    places = [place(action) for action in decision.actions]
    if places != sorted(places):
        yield "actions are not in the order acquisitions, preemptions, reclaims, deletes by need"


def _false_supply(fleet: Fleet, demand: Demand, decision: Decision) -> Iterator[str]:
    """Pods are placed only on machines that are supply for their cluster."""
    ordered = {action.row: action.need for action in decision.actions}
    unordered: set[int] = set()
    for row, need in _pairs(decision):
        state = MachineState(int(fleet.state[row]))
        cluster = int(demand.cluster[need])
        if state is MachineState.CONFIGURED and fleet.cluster[row] != cluster:
            orderer = ordered.get(row, NONE)
            if orderer == NONE:
                unordered.add(row)
            elif demand.cluster[orderer] != cluster:
                yield f"need {need} uses row {row}, which another cluster takes"
        elif not _is_supply(fleet, demand, row, cluster, ordered.get(row, NONE), decision):
            yield f"need {need} uses row {row}, which is {state.name} and not its supply"
        if not accepts_machine(demand.needs[need].profile, fleet.flavours[fleet.flavour[row]]):
            yield f"need {need} uses row {row}, which does not match its profile"
    # The cap may make a machine of another cluster wait for its reclaim.
    if len(unordered) > decision.reclaims_capped:
        yield f"{len(unordered)} machines of other clusters are used, but not drained"


def _pairs(decision: Decision) -> list[tuple[int, int]]:
    pods = decision.placements
    claims = np.flatnonzero(decision.claimed_by != NONE)
    return sorted(
        {
            *zip(pods.row.tolist(), pods.need.tolist(), strict=True),
            *zip(claims.tolist(), decision.claimed_by[claims].tolist(), strict=True),
        }
    )


def _is_supply(
    fleet: Fleet, demand: Demand, row: int, cluster: int, orderer: int, decision: Decision
) -> bool:
    state = int(fleet.state[row])  # comparing numpy's scalars with an enum is slow
    if state == MachineState.DRAINING:
        holder = int(decision.claimed_by[row])
        return _home(fleet, demand, row) == cluster or bool(demand.cluster[holder] == cluster)
    if state not in ACQUIRABLE:
        return _home(fleet, demand, row) == cluster
    return orderer != NONE and bool(demand.cluster[orderer] == cluster)


def _home(fleet: Fleet, demand: Demand, row: int) -> int:
    """The cluster that a machine is supply for before the decision, or NONE."""
    state, last_claimed_by = int(fleet.state[row]), int(fleet.last_claimed_by[row])
    if state in _WITH_NODE:
        return int(fleet.cluster[row])
    if state not in (MachineState.CREATING, MachineState.DRAINING):
        return NONE
    return (
        int(demand.cluster[last_claimed_by])
        if last_claimed_by != NONE
        else int(fleet.destination[row])
    )


def _overfull(fleet: Fleet, demand: Demand, decision: Decision) -> Iterator[str]:
    """The pods on a machine fit, and are of one cluster."""
    used: defaultdict[int, Counter[str]] = defaultdict(Counter)
    cluster: dict[int, int] = {}
    pods = decision.placements
    for row, need, size, number in zip(*(column.tolist() for column in pods), strict=True):
        if cluster.setdefault(row, int(demand.cluster[need])) != demand.cluster[need]:
            yield f"row {row} has pods of two clusters"
        for name, amount in demand.needs[need].sizes[size].amounts:
            used[row][name] += amount * number
    for row, amounts in used.items():
        room = capacity(fleet, demand, row, cluster[row])
        over = {name: n for name, n in amounts.items() if n > room.get(name, 0)}
        if over:
            yield f"row {row} is overcommitted: {over}"


def capacity(fleet: Fleet, demand: Demand, row: int, cluster: int) -> dict[str, int]:
    """Allocatable of one machine for a cluster's pods, less its DaemonSets' overhead."""
    flavour = fleet.flavours[fleet.flavour[row]]
    room = dict(flavour.allocatable)
    for overhead in () if flavour.limited else demand.overheads.get(cluster, ()):
        alternatives = overhead.alternatives
        if (
            accepts(overhead.requirements, flavour.labels)
            and (not alternatives or any(accepts(t, flavour.labels) for t in alternatives))
            and tolerates(overhead.tolerations, flavour.taints)
        ):
            for name, amount in overhead.amounts:
                room[name] = room.get(name, 0) - amount
    return {name: max(0, amount) for name, amount in room.items()}


def _wrong_totals(demand: Demand, decision: Decision) -> Iterator[str]:
    """Every pod is either placed or reported as short."""
    placed = placed_sizes(demand, decision)
    if [s.need for s in decision.shortfalls] != sorted({s.need for s in decision.shortfalls}):
        yield "shortfalls are not one per need in the demand's order"
    for shortfall in decision.shortfalls:
        placed.setdefault(shortfall.need, []).extend((*shortfall.sizes, *shortfall.impossible))
    for index, need in enumerate(demand.needs):
        together = sizes_of((dict(s.amounts), s.pods) for s in placed.get(index, ()))
        if together != sizes_of((dict(s.amounts), s.pods) for s in need.sizes):
            yield f"need {index} requests {need.sizes}, of which {together} are accounted for"


def placed_sizes(demand: Demand, decision: Decision) -> dict[int, list[Size]]:
    """By need, how many pods of each size are placed."""
    placed: dict[int, list[Size]] = {}
    pods = decision.placements
    for _, need, size, number in zip(*(column.tolist() for column in pods), strict=True):
        placed.setdefault(need, []).append(Size(demand.needs[need].sizes[size].amounts, number))
    return placed


def _unused_orders(decision: Decision) -> Iterator[str]:
    """Every machine that is acquired or preempted gets a pod, or is headroom."""
    used = {*decision.placements.row.tolist(), *decision.headroom}
    for action in decision.actions:
        if action.type in (*_ACQUIRING, ActionType.PREEMPT) and action.row not in used:
            yield f"{action.type.value} of row {action.row} for need {action.need} places no pod"


def _unconfirmed_reclaims(fleet: Fleet, decision: Decision) -> Iterator[str]:
    """A reclaim without a requester has a known disruption cost, or the machine served a gang that
    is complete elsewhere.
    """
    counted = {*decision.placements.row.tolist()}
    for action in decision.actions:
        if action.type is ActionType.RECLAIM and action.need == NONE:
            known = bool(np.isfinite(fleet.disruption_cost[action.row]))
            if not known and fleet.last_claimed_by[action.row] == NONE:
                yield f"row {action.row} is reclaimed, but its disruption cost is unknown"
            if action.row in counted:
                yield f"row {action.row} is reclaimed with pods placed on it"


def _misplaced(fleet: Fleet, demand: Demand, decision: Decision, index: int) -> Iterator[str]:
    profile, pods = demand.needs[index].profile, decision.placements
    its = pods.need == index
    rows, numbers = pods.row[its].tolist(), pods.pods[its].tolist()
    if profile.same_key not in (None, HOSTNAME_LABEL):
        domains = _domains(fleet, rows, [1] * len(rows), str(profile.same_key))
        if len(domains) > 1:
            yield f"need {index} has machines in {len(domains)} domains of {profile.same_key}"
    for key in profile.anti_affinity:
        if any(number > 1 for number in _domains(fleet, rows, numbers, key).values()):
            yield f"need {index} has two pods in one domain of {key}"
    may_have_lost_pods = index in {shortfall.need for shortfall in decision.shortfalls}
    # The pods of an additional need spread together with those of another need.
    if not may_have_lost_pods and not isinstance(demand.needs[index].group, Additional):
        yield from _beyond_skew(fleet, demand, decision, index)


def _beyond_skew(fleet: Fleet, demand: Demand, decision: Decision, index: int) -> Iterator[str]:
    pods, cluster = decision.placements, demand.cluster[index]
    its = pods.need == index
    rows, numbers = pods.row[its].tolist(), pods.pods[its].tolist()
    nodes = [
        row for row in rows if fleet.state[row] in _WITH_NODE and fleet.cluster[row] == cluster
    ]
    for term in hard_spread(demand.needs[index].profile):
        count = _domains(fleet, rows, numbers, term.topology_key)
        # A domain that is new to the cluster may lag behind, also one whose machine is on its way.
        # Domains without pods of the need are not seen here; with them, the minimum would be 0.
        kept = [count[d] for d in _domains(fleet, nodes, [0] * len(nodes), term.topology_key)]
        if term.min_domains == 1 and kept and max(kept) - min(kept) > term.max_skew:
            yield f"need {index} is placed beyond max_skew of {term.topology_key}"


def _domains(fleet: Fleet, rows: Sequence[int], numbers: Sequence[int], key: str) -> Counter[str]:
    domains: Counter[str] = Counter()
    for row, number in zip(rows, numbers, strict=True):
        labels = fleet.flavours[fleet.flavour[row]].labels
        domains[str(row) if key == HOSTNAME_LABEL else labels.get(key, "")] += number
    return domains


def _needless_evictions(
    fleet: Fleet, demand: Demand, decision: Decision, index: int
) -> Iterator[str]:
    profile = demand.needs[index].profile
    evicted = [a.row for a in decision.actions if a.need == index and a.type is ActionType.PREEMPT]
    if not evicted:
        return
    if profile.never_preempts:
        yield f"need {index} preempts, but its preemptionPolicy is Never"
    short = {shortfall.need for shortfall in decision.shortfalls if shortfall.sizes}
    if profile.same_key is not None and index in short:
        yield f"need {index} preempts, but its gang stays incomplete"
    if profile.same_key is None and not hard_spread(profile) and not profile.anti_affinity:
        yield from _avoidable_evictions(fleet, demand, decision, index, evicted)


def _avoidable_evictions(
    fleet: Fleet, demand: Demand, decision: Decision, index: int, evicted: Sequence[int]
) -> Iterator[str]:
    """Free machines that a plain need could use instead of those that it preempts, and that no
    later need could use.
    """
    profile = demand.needs[index].profile
    unpromised = (fleet.last_claimed_by == NONE) | (fleet.last_claimed_by == index)
    free = fleet.acquirable & (decision.claimed_by == NONE) & unpromised
    free &= True if fleet.backed_off is None else ~fleet.backed_off
    cluster = int(demand.cluster[index])
    for row in np.flatnonzero(free).tolist():
        flavour = fleet.flavours[fleet.flavour[row]]
        # A later need may have used it until its own turn to preempt.
        if any(accepts_machine(need.profile, flavour) for need in demand.needs[index + 1 :]):
            continue
        for victim in evicted:
            theirs = capacity(fleet, demand, victim, cluster)
            mine = capacity(fleet, demand, row, cluster)
            enough = all(mine.get(name, 0) >= amount for name, amount in theirs.items())
            if enough and accepts_machine(profile, flavour):
                yield f"need {index} preempts row {victim}, although row {row} is free"
