"""Invariants of what a decision does for one need: where its pods are, and what it preempts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from bigfleet.engine.decision import ActionType, Decision
from bigfleet.engine.fit.matching import accepts, accepts_machine, hard_spread, tolerates
from bigfleet.engine.snapshot import IN_SERVICE, NONE, Demand, Flavour, Fleet, in_states
from bigfleet.model.ceiling import Ceiling, micros
from bigfleet.model.group import Additional
from bigfleet.model.labels import HOSTNAME_LABEL


def violations_of_need(
    fleet: Fleet, demand: Demand, decision: Decision, index: int
) -> Iterator[str]:
    """One message for each invariant that `decision` breaks for the need `index`."""
    yield from _misplaced(fleet, demand, decision, index)
    yield from _needless_evictions(fleet, demand, decision, index)


def capacity(demand: Demand, flavour: Flavour, cluster: int) -> dict[str, int]:
    """Allocatable of one machine for a cluster's pods, less its DaemonSets' overhead."""
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
    # Pods that ran before a domain was added are not held back by it. The pods of an additional
    # need spread together with those of another need.
    may_have_lost_pods |= index in decision.beyond_skew
    # Nor do those on machines that stay hold back the ones on machines that go.
    may_have_lost_pods |= _loses_machines(fleet, decision, int(demand.cluster[index]))
    if not may_have_lost_pods and not isinstance(demand.needs[index].group, Additional):
        yield from _beyond_skew(fleet, demand, decision, index)


def _loses_machines(fleet: Fleet, decision: Decision, cluster: int) -> bool:
    drains = ActionType.PREEMPT, ActionType.RECLAIM
    drained = [action.row for action in decision.actions if action.type in drains]
    return bool((fleet.cluster[drained] == cluster).any())


def _beyond_skew(fleet: Fleet, demand: Demand, decision: Decision, index: int) -> Iterator[str]:
    terms = hard_spread(demand.needs[index].profile)
    if not terms:
        return
    pods = decision.placements
    its = pods.need == index
    rows, numbers = pods.row[its].tolist(), pods.pods[its].tolist()
    joined = in_states(fleet.state, IN_SERVICE) & (fleet.cluster == demand.cluster[index])
    nodes = [row for row in rows if joined[row]]
    for term in terms:
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
    cluster = int(demand.cluster[index])
    rows = np.flatnonzero(free)
    for row in rows[~fleet.backs_off(cluster, rows)].tolist():
        flavour = fleet.flavours[fleet.flavour[row]]
        # A later need may have used it until its own turn to preempt.
        if any(accepts_machine(need.profile, flavour) for need in demand.needs[index + 1 :]):
            continue
        if not accepts_machine(profile, flavour):
            continue
        mine = capacity(demand, flavour, cluster)
        for victim in evicted:
            instead_of = fleet.flavours[fleet.flavour[victim]]
            theirs = capacity(demand, instead_of, cluster)
            enough = all(mine.get(name, 0) >= amount for name, amount in theirs.items())
            if enough and _is_affordable(demand, decision, cluster, flavour, instead_of):
                yield f"need {index} preempts row {victim}, although row {row} is free"


def _is_affordable(
    demand: Demand, decision: Decision, cluster: int, flavour: Flavour, instead_of: Flavour
) -> bool:
    """Whether the cluster may have one machine instead of another within its ceiling."""
    dollars = demand.ceilings.get(cluster, Ceiling()).dollars_per_hour
    if math.isinf(dollars):
        return True
    more = micros(flavour.price_per_hour) - micros(instead_of.price_per_hour)
    return decision.held[cluster].micros + more <= micros(dollars)
