"""What holds for every decision, on random fleets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from engine_oracle import Oracle
from engine_random import random_case
from engine_rig import DONE, IN_FLIGHT, NOW, SETTINGS, carried_out, checked, told
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bigfleet.engine.matching import hard_spread
from bigfleet.engine.snapshot import NONE, Demand, Fleet

SEEDS = st.integers(0, 2**32)


def decide_like_the_oracle(fleet: Fleet, demand: Demand) -> None:
    """The engine's decision breaks no invariant and is the slow one's."""
    slow = Oracle(fleet, demand, SETTINGS, NOW).decide()
    assert told(checked(fleet, demand, SETTINGS)) == told(slow)


@hypothesis_settings(max_examples=100, deadline=None)
@given(SEEDS, st.integers(0, 40), st.integers(1, 8))
def test_small_fleets_are_decided_as_the_oracle_does(seed: int, machines: int, needs: int) -> None:
    """Any fleet up to 40 machines: same actions in the same order, same claims, same shortfalls."""
    decide_like_the_oracle(*random_case(seed, machines, needs))


@pytest.mark.parametrize("seed", range(4))
def test_crowded_fleets_are_decided_as_the_oracle_does(seed: int) -> None:
    """400 machines and 30 needs, so that lists are longer than one block."""
    decide_like_the_oracle(*random_case(seed, 400, 30))


@hypothesis_settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_the_order_of_rows_does_not_matter(seed: int) -> None:
    """A fleet listed in another order gets the same orders for the same machines."""
    fleet, demand = random_case(seed)
    order = np.random.default_rng(seed).permutation(len(fleet))
    columns = {
        name: getattr(fleet, name)[order]
        for name in Fleet.__dataclass_fields__
        if name not in ("flavours", "clusters")
    }
    shuffled = Fleet(fleet.flavours, fleet.clusters, **columns)
    moved = [(a.kind, int(order[a.row]), a.need) for a in checked(shuffled, demand).actions]
    assert moved == [(a.kind, a.row, a.need) for a in checked(fleet, demand).actions]


@hypothesis_settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_a_served_fleet_comes_to_rest(seed: int) -> None:
    """With the demand unchanged and all orders done, a fleet soon gets no orders any more."""
    fleet, demand = random_case(seed)
    for _ in range(30):
        decision = checked(fleet, demand, SETTINGS)
        if not decision.actions:
            return
        fleet = carried_out(fleet, demand, decision, DONE)
    pytest.fail("30 cycles were not enough")


@hypothesis_settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_a_need_orders_once(seed: int) -> None:
    """While its orders are under way, a need orders nothing more, and its shortfall stays flat.

    Except where a machine that became superfluous makes room for the skew of a spread.
    """
    fleet, demand = random_case(seed, needs=1)
    assume(not hard_spread(demand.needs[0].profile))
    first = checked(fleet, demand, SETTINGS)
    later = checked(carried_out(fleet, demand, first, IN_FLIGHT), demand, SETTINGS)
    assert [a for a in later.actions if a.need != NONE] == []
    assert later.shortfalls == first.shortfalls


_PROGRAM = """
from engine_random import random_case
from engine_rig import SETTINGS, told
from bigfleet.engine.decide import decide
for seed in range(10):
    print(told(decide(*random_case(seed), SETTINGS, 10_000.0)))
"""


def test_hash_seeds_do_not_matter() -> None:
    """Processes with different string hashing decide the same."""
    here = Path(__file__).parent
    path = os.pathsep.join((str(here), str(here.parents[1])))
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "4711")
    }
    assert len(outputs) == 1
    assert b"Bootstrap" in outputs.pop()
