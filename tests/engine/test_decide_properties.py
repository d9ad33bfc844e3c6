"""Properties of every decision, on random fleets."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decision import Action, ActionType, Decision
from bigfleet.engine.fit.folding import fold
from bigfleet.engine.fit.matching import hard_spread
from bigfleet.engine.snapshot import NONE, Demand, EngineConfig, Fleet
from bigfleet.model.group import ADDITIONAL, Additional, FoldedGangs
from bigfleet.model.machine import MachineState
from tests.engine.engine_history import RandomHistory
from tests.engine.engine_random import Case, case_with_memory, unfolded_case
from tests.engine.engine_rig import DONE, IN_FLIGHT, NOW, SETTINGS, carried_out, checked
from tests.engine.oracle.matching import room_of, suits

SEEDS = st.integers(0, 2**32)
_AT_LARGE = replace(SETTINGS, reclaim_cap_fraction=1.0)


def decided(case: Case, settings: EngineConfig = SETTINGS, now: float = NOW) -> Decision:
    """A decision that breaks no invariant."""
    return checked(case.fleet, case.demand, settings, now, case.cycle_memory)


def done(fleet: Fleet, demand: Demand, decision: Decision) -> Fleet:
    """The case after all actions are carried out."""
    after = carried_out(fleet, demand, decision, DONE)
    served = np.array([*(need.profile.priority for need in demand.needs), 0], np.int32)
    counted = decision.claimed_by != NONE
    priority = np.where(counted, served[decision.claimed_by], fleet.priority)
    return replace(after, priority=priority.astype(np.int32))


def plainly(actions: list[Action], order: list[int]) -> list[tuple[ActionType, int, int, int]]:
    """Actions with rows renamed by `order`."""
    return [(a.type, order[a.row], a.need, a.grace_seconds) for a in actions]


@hypothesis_settings(max_examples=40)
@given(SEEDS)
def test_the_order_of_rows_and_flavours_does_not_matter(seed: int) -> None:
    """A fleet listed in another order gets the same actions for the same machines."""
    fleet, demand, cycle_memory = case_with_memory(seed)
    draw = np.random.default_rng(seed)
    order, kinds = draw.permutation(len(fleet)), draw.permutation(len(fleet.flavours))
    optional = ("backed_off", "backed_off_for", "backed_off_for_too")
    columns = {
        name: getattr(fleet, name)[order]
        for name in Fleet.__dataclass_fields__
        if name not in ("flavours", "clusters", "flavour", *optional)
    }
    flavours = [fleet.flavours[kind] for kind in kinds.tolist()]
    flavour = np.argsort(kinds)[fleet.flavour[order]].astype(np.int32)
    for name in optional:
        if (column := getattr(fleet, name)) is not None:
            columns[name] = column[order]
    shuffled = Fleet(flavours, fleet.clusters, flavour, **columns)
    one, other = (
        decided(Case(fleet, demand, cycle_memory)),
        decided(Case(shuffled, demand, cycle_memory)),
    )
    same = list(range(len(fleet)))
    assert plainly([*other.actions], order.tolist()) == plainly([*one.actions], same)
    assert other.shortfalls == one.shortfalls
    assert {*order[[*other.headroom]].tolist()} == {*one.headroom}
    assert other.cycle_memory == one.cycle_memory


@hypothesis_settings(max_examples=40)
@given(SEEDS)
def test_flavours_without_machines_do_not_matter(seed: int) -> None:
    """A flavour without machines changes nothing."""
    fleet, demand, cycle_memory = case_with_memory(seed)
    draw = np.random.default_rng(seed)
    stay = fleet.flavour != draw.integers(len(fleet.flavours))
    few = fleet.of_rows(stay)
    left = np.unique(few.flavour)
    number = np.full(len(fleet.flavours), NONE, np.int32)
    number[left] = np.arange(len(left))
    without = replace(
        few, flavours=[few.flavours[kind] for kind in left], flavour=number[few.flavour]
    )
    # A gang's reserved domain counts for as long as a flavour has its label, also one without
    # machines: then more of the gang's pods are reported as unplaced.
    known = {value for flavour in without.flavours for value in flavour.labels.values()}
    reserved = tuple(each for each in cycle_memory.reservations if each.domain in known)
    cycle_memory = replace(cycle_memory, reservations=reserved)
    one, other = (
        decided(Case(few, demand, cycle_memory)),
        decided(Case(without, demand, cycle_memory)),
    )
    assert other.actions == one.actions
    assert other.shortfalls == one.shortfalls


@hypothesis_settings(max_examples=25)
@given(SEEDS)
@example(14223919)  # a machine is bought again for a scarce resource that its pods do not use
def test_a_served_fleet_comes_to_rest_and_stays_there(seed: int) -> None:
    """With an unchanged demand and all actions carried out, actions soon end, and there are none
    as long as nothing changes. Machines reclaimed and acquired again are held for longer.
    """
    fleet, asked = unfolded_case(seed, 30, 6)
    demand, cycle_memory, quiet, now = fold(fleet, asked).demand, CycleMemory(), 0, NOW
    for _ in range(60):
        decision = decided(Case(fleet, demand, cycle_memory), EngineConfig(), now)
        fleet, cycle_memory = done(fleet, demand, decision), decision.cycle_memory
        quiet, now = 0 if decision.actions else quiet + 1, now + 60
        if quiet == 8:
            return
    pytest.fail("60 cycles were not enough")


def test_a_need_orders_once() -> None:
    """While its operations are in progress, a need orders nothing more. (Placed again elsewhere,
    pods are wrongly short now and then: in less than one of fifty of these contended fleets.)
    """
    again = 0
    for seed in range(200):
        fleet, asked = unfolded_case(seed, 30, 1)
        demand = fold(fleet, asked).demand
        kind = demand.needs[0].profile
        if not hard_spread(kind) and not kind.anti_affinity:
            first = decided(Case(fleet, demand, CycleMemory()), _AT_LARGE)
            under_way = carried_out(fleet, demand, first, IN_FLIGHT)
            later = decided(Case(under_way, demand, first.cycle_memory), _AT_LARGE)
            again += any(action.need != NONE for action in later.actions)
    assert again <= 3


def test_hardly_ever_is_a_deficit_preempted_twice() -> None:
    """While operations are in progress, no pods are evicted for a need that was covered.
    (A contended repack may not fit a few pods that the last one placed: in less than
    one of fifty of these fleets, pods are evicted for that.)
    """
    evicted: list[int] = []
    for seed in range(150):
        case = case_with_memory(seed)
        first = decided(case, _AT_LARGE)
        under_way = carried_out(case.fleet, case.demand, first, IN_FLIGHT)
        later = decided(Case(under_way, case.demand, first.cycle_memory), _AT_LARGE, NOW + 1)
        short = {shortfall.need for shortfall in first.shortfalls}
        again = [a for a in later.actions if a.type is ActionType.PREEMPT and a.need not in short]
        evicted += [seed] * bool(again)
    assert len(evicted) <= 3, evicted


@hypothesis_settings(max_examples=30)
@given(SEEDS)
def test_while_demand_only_grows_nothing_is_given_back(seed: int) -> None:
    """Ten cycles of growth: no voluntary reclaims, but for machines that a gang has left."""
    history = RandomHistory(seed, changes=1.0, ways=("comes", "grows"))
    history.forget_falls()
    for _ in range(10):
        decision = decided(history.case, EngineConfig(), history.now)
        for action in decision.actions:
            if action.type is ActionType.RECLAIM and action.need == NONE:
                served = int(history.case.fleet.last_claimed_by[action.row])
                empty = history.case.fleet.disruption_cost[action.row] == 0
                gang = served != NONE and history.case.demand.needs[served].profile.same_key
                assert gang or empty, action
        history.after(decision)


@hypothesis_settings(max_examples=60)
@given(SEEDS)
@example(1394)  # pods are spread over Nodes and a machine on its way
@example(659174)  # a gang of the same priority leaves its former domain
def test_nothing_is_given_back_that_others_lack(seed: int) -> None:
    """A voluntarily reclaimed machine fits no short plain need of another cluster, but for one that
    a gang leaves: its pods run until it is drained, and others have it then.
    """
    fleet, demand, cycle_memory = case_with_memory(seed)
    decision = decided(Case(fleet, demand, cycle_memory))
    surplus = np.isfinite(fleet.disruption_cost)
    going = [
        a.row
        for a in decision.actions
        if a.type is ActionType.RECLAIM and a.need == NONE and surplus[a.row]
    ]
    gone = {r.need for r in cycle_memory.reservations if NOW - r.since_seconds >= 900}
    for short in decision.shortfalls:
        need, cluster = demand.needs[short.need], int(demand.cluster[short.need])
        kind = need.profile
        passes = (fleet.clusters[cluster], *need.key) in gone or may_not_acquire(demand, cluster)
        apart = kind.same_key or kind.anti_affinity or hard_spread(kind)
        if need.group == ADDITIONAL or apart or passes:
            continue
        for row in going:
            flavour = fleet.flavours[fleet.flavour[row]]
            room = room_of(flavour, demand.overheads.get(cluster, ()))
            holds = any(
                all(room.get(name, 0) >= amount for name, amount in size.amounts)
                for size in short.sizes
            )
            other = int(fleet.cluster[row]) != cluster
            assert not (other and holds and suits(kind, flavour)), (row, short)


def may_not_acquire(demand: Demand, cluster: int) -> bool:
    """It is suspended, or has a ceiling that it may have reached."""
    ceiling = demand.ceilings.get(cluster)
    return cluster in demand.suspended or (ceiling is not None and ceiling.bounds_acquisition)


@hypothesis_settings(max_examples=60)
@given(SEEDS)
@example(9928)  # a gang gives back machines on which earlier needs had counted
@example(636)  # pods count on a machine of an additional need of lower priority
@example(3126)
def test_no_free_machine_is_left_that_a_short_plain_need_could_use(seed: int) -> None:
    """No idle or speculative machine is left that could hold one of its pods."""
    fleet, demand, cycle_memory = case_with_memory(seed)
    decision = decided(Case(fleet, demand, cycle_memory))
    ordered = {action.row for action in decision.actions if action.type is not ActionType.DELETE}
    free = np.isin(fleet.state, (int(MachineState.IDLE), int(MachineState.SPECULATIVE)))
    rows = np.flatnonzero(free)
    gone = {r.need for r in cycle_memory.reservations if NOW - r.since_seconds >= 900}
    for short in decision.shortfalls:
        need, cluster = demand.needs[short.need], int(demand.cluster[short.need])
        kind = need.profile
        passes = (fleet.clusters[cluster], *need.key) in gone or may_not_acquire(demand, cluster)
        apart = kind.same_key or kind.anti_affinity or hard_spread(kind)
        if need.group == ADDITIONAL or apart or passes:
            continue
        for row in rows[~fleet.backs_off(cluster, rows)].tolist():
            flavour = fleet.flavours[fleet.flavour[row]]
            if row not in ordered and suits(kind, flavour):
                room = room_of(flavour, demand.overheads.get(cluster, ()))
                for size in short.sizes:
                    assert any(room.get(name, 0) < amount for name, amount in size.amounts)


@hypothesis_settings(max_examples=60)
@given(SEEDS)
def test_gangs_are_complete_or_take_nothing(seed: int) -> None:
    """All machines with a gang's pods share a domain; no pods are evicted for part of a gang."""
    case = case_with_memory(seed)
    decision = decided(case)
    short = {s.need for s in decision.shortfalls if s.sizes}
    for index, need in enumerate(case.demand.needs):
        key = need.profile.same_key
        if key is None or isinstance(need.group, Additional | FoldedGangs):
            continue
        rows = decision.placements.row[decision.placements.need == index].tolist()
        assert len({case.fleet.flavours[case.fleet.flavour[r]].labels[key] for r in rows}) <= 1
        evicts = any(a.need == index and a.type is ActionType.PREEMPT for a in decision.actions)
        assert not (evicts and index in short)


_ROOT = Path(__file__).parents[2]
_PROGRAM = """
import os, sys
os.sched_setaffinity(0, [*os.sched_getaffinity(0)][:int(sys.argv[1])])
from tests.engine.engine_random import case_with_memory
from tests.engine.engine_rig import SETTINGS
from bigfleet.engine.decide import decide
sizes = [(40, 8)] * 60 + [(300, 25)] * 2
for seed, (machines, needs) in enumerate(sizes):
    decision = decide(*case_with_memory(seed, machines, needs), SETTINGS, 10_000.0)
    placed = [column.tolist() for column in decision.placements]
    asked = {cluster: rows.tolist() for cluster, rows in decision.disruption_cost_queries.items()}
    parts = decision.actions, decision.shortfalls, placed, decision.cycle_memory, asked
    words = repr((parts, sorted(decision.headroom), decision.reclaims_capped)).encode()
    sys.stdout.buffer.write(decision.claimed_by.tobytes() + words)
"""


def _decided_with(hash_seed: str, threads: int, cores: int, compiled: bool) -> bytes:
    pools = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "PYTHONHASHSEED": hash_seed}
    environment["NUMBA_DISABLE_JIT"] = "0" if compiled else "1"
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(cores)],
        env=environment | dict.fromkeys(pools, str(threads)),
        capture_output=True,
        check=True,
    ).stdout


def test_hash_seeds_threads_cores_and_compiling_do_not_matter() -> None:
    """Two decisions on one snapshot are equal to the byte, wherever and however they are made."""
    # Side by side: each is a process that is busy by itself for seconds.
    with ThreadPoolExecutor() as deciding:
        first, *others = deciding.map(
            _decided_with,
            ("0", "1", "random", "4711"),
            (1, 2, 1, 2),
            (1, 1, 99, 99),
            (True, True, True, False),
        )
    assert b"PREEMPT" in first
    assert [other == first for other in others] == [True, True, True]
