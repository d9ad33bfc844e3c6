"""The engine decides as the oracle, a plain and slow implementation of its specification."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bigfleet.engine.decision import Decision
from bigfleet.engine.fit.folding import fold
from bigfleet.engine.snapshot import EngineConfig
from tests.engine.engine_history import RandomHistory
from tests.engine.engine_random import Case, case_with_memory, unfolded_case
from tests.engine.engine_rig import NOW, SETTINGS, checked
from tests.engine.oracle.decision import Oracle
from tests.engine.oracle.matching import folded

SEEDS = st.integers(0, 2**32)
# With holds as they are in service, and with reservations that soon end.
_PATIENT = EngineConfig(reservation_seconds=40.0)


def decide_like_the_oracle(
    case: Case, settings: EngineConfig = SETTINGS, now: float = NOW
) -> Decision:
    """The engine's decision, which breaks no invariant and is the oracle's."""
    decision = checked(case.fleet, case.demand, settings, now, case.cycle_memory)
    oracle = Oracle(*case, settings, now)
    actions = [(a.type.value, a.row, a.need, a.grace_seconds) for a in decision.actions]
    assert actions == oracle.actions
    placed = Counter[tuple[int, int, int]]()
    for row, need, size, pods in zip(*(c.tolist() for c in decision.placements), strict=True):
        placed[row, need, size] += pods
    assert placed == oracle.placements
    assert [
        (s.need, s.sizes, s.impossible, s.age_cycles, s.since_seconds) for s in decision.shortfalls
    ] == oracle.shortfalls
    assert decision.claimed_by.tolist() == oracle.claimed_by
    assert decision.headroom == oracle.headroom
    assert decision.reclaims_capped == oracle.reclaims_capped
    assert {
        c: rows.tolist() for c, rows in decision.disruption_cost_queries.items()
    } == oracle.disruption_cost_queries
    assert {c: rows.tolist() for c, rows in decision.surplus.items()} == oracle.surplus
    assert decision.cycle_memory == oracle.cycle_memory
    assert decision.at_ceiling == oracle.at_ceiling
    assert decision.held == oracle.held
    assert decision.beyond_skew == oracle.beyond_skew
    assert decision.growing == oracle.growing
    return decision


def live_like_the_oracle(seed: int, cycles: int = 8) -> None:
    """Run several cycles, each from the state that the last one left."""
    history, settings = RandomHistory(seed), SETTINGS if seed % 2 else _PATIENT
    for _ in range(cycles):
        history.after(decide_like_the_oracle(history.case, settings, history.now))


@hypothesis_settings(max_examples=150)
@given(SEEDS, st.integers(0, 40), st.integers(0, 8))
@example(338, 2, 4)  # an additional need of GPUs, after a need that is short and may not acquire
def test_random_fleets_are_decided_as_the_oracle_does(seed: int, machines: int, needs: int) -> None:
    """Same actions in the same order, placements, shortfalls, claims, queries and memory."""
    decide_like_the_oracle(case_with_memory(seed, machines, needs))


@pytest.mark.parametrize("seed", range(3))
def test_large_random_fleets_are_decided_as_the_oracle_does(seed: int) -> None:
    """200 machines and 20 needs."""
    decide_like_the_oracle(case_with_memory(seed, 200, 20))


@hypothesis_settings(max_examples=20)
@given(SEEDS)
def test_random_histories_are_decided_as_the_oracle_does(seed: int) -> None:
    """Eight cycles in which operations finish, fail or are lost, and pods come and go."""
    live_like_the_oracle(seed)


@hypothesis_settings(max_examples=100)
@given(SEEDS)
@example(1654)  # a gang's priority is lower than that of its pods
def test_gangs_fold_as_the_oracle_folds_them(seed: int) -> None:
    """Gangs that fit on one machine become plain needs; all others stay as they are."""
    fleet, demand = unfolded_case(seed)
    plain, served = folded(fleet, demand), fold(fleet, demand).demand
    assert [*served.needs] == [*plain.needs]
    assert served.cluster.tolist() == plain.cluster.tolist()


def test_the_oracle_sees_a_wrong_decision() -> None:
    """The comparison fails when the two decide from different settings."""
    differences = 0
    for seed in range(30):
        case = case_with_memory(seed)
        ours = checked(case.fleet, case.demand, SETTINGS, NOW, case.cycle_memory)
        other = Oracle(*case, replace(SETTINGS, reclaim_cap_fraction=0.0), NOW)
        differences += [a.row for a in ours.actions] != [row for _, row, _, _ in other.actions]
    assert differences


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_random_histories_are_decided_as_the_oracle_does() -> None:
    """ORACLE_SEEDS random fleets, one in eight of them over several cycles (make oracle)."""
    first = int(os.environ.get("ORACLE_FIRST_SEED", "0"))
    for seed in range(first, first + int(os.environ.get("ORACLE_SEEDS", "10000"))):
        try:
            decide_like_the_oracle(case_with_memory(seed))
            if seed % 8 == 0:
                live_like_the_oracle(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
