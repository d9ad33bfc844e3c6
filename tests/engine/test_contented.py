"""Needs that their own machines cover are served at once, and nobody can tell."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import numpy as np
from engine_random import random_carry, random_case
from engine_rig import NOW, SETTINGS, configured, demand_of, fleet_of, need_of, told
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.engine import assign, contented
from bigfleet.engine.carry import Carry
from bigfleet.engine.decide import decide
from bigfleet.engine.decision import Decision
from bigfleet.engine.desk import Desk
from bigfleet.engine.snapshot import Demand, Fleet


class _OneByOne:
    """Has each need served by itself."""

    def __init__(self, desk: Desk) -> None:
        self._needs = len(desk.demand.needs)

    def turns(self) -> Iterator[int]:
        """All needs."""
        yield from range(self._needs)


def decided(fleet: Fleet, demand: Demand, carry: Carry) -> Decision:
    """The decision, which is the same when each need is served by itself."""
    decision = decide(fleet, demand, carry, SETTINGS, NOW)
    with mock.patch.object(assign, "Contented", _OneByOne):
        assert told(decide(fleet, demand, carry, SETTINGS, NOW)) == told(decision)
    return decision


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(1, 8), st.integers(1, 8))
def test_served_at_once_is_served_one_by_one(
    seed: int, machines: int, needs: int, at_once: int
) -> None:
    """Any fleet gets the same decision, however many needs are looked at together."""
    fleet, demand = random_case(seed, machines, needs)
    with mock.patch.object(contented, "_NEEDS_AT_ONCE", at_once):
        decided(fleet, demand, random_carry(seed, fleet, demand))


@settings(max_examples=10)
@given(st.integers(0, 2**32))
def test_crowds_are_served_as_one_by_one(seed: int) -> None:
    """400 machines and 60 needs, of which many are covered and many are not."""
    fleet, demand = random_case(seed, 400, 60)
    decided(fleet, demand, random_carry(seed, fleet, demand))


def test_who_was_robbed_looks_for_another_machine() -> None:
    """A need whose machine an urgent neighbour counts takes the next one, and so on."""
    fleet = fleet_of([
        configured("a", wanted_by=1, price=1.0),
        configured("b", wanted_by=2, price=2.0),
        configured("c", price=3.0),
    ])  # fmt: skip
    needs = [need_of(4, group=f"g{at}", priority=100 - at) for at in range(3)]
    demand = demand_of(fleet, [("east", need) for need in needs])
    assert decided(fleet, demand, Carry()).claimed_by.tolist() == [0, 1, 2]


def test_no_more_machines_are_counted_than_cover_the_need() -> None:
    """Of its own machines a need counts the cheapest that cover it; the next one is free."""
    fleet = fleet_of([configured(name, wanted_by=0, price=float(name)) for name in "123"])
    demand = demand_of(fleet, [("east", need_of(8))])
    np.testing.assert_array_equal(decided(fleet, demand, Carry()).claimed_by, [0, 0, -1])
