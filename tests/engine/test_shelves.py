"""Needs look at the front of each shelf only, and choose as if they had looked at all machines."""

from __future__ import annotations

from unittest import mock

import pytest
from engine_random import random_case
from engine_rig import NOW, SETTINGS, told
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.engine import shelves, supply
from bigfleet.engine.carry import Carry
from bigfleet.engine.decide import decide
from bigfleet.engine.snapshot import Demand, Fleet


def decided(fleet: Fleet, demand: Demand) -> tuple[object, ...]:
    return told(decide(fleet, demand, Carry(), SETTINGS, NOW))


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(1, 12), st.integers(0, 2))
def test_the_front_of_each_shelf_is_enough(
    seed: int, machines: int, needs: int, slack: int
) -> None:
    """Any fleet gets the same decision from whole lists, however often shelves are tidied up."""
    fleet, demand = random_case(seed, machines, needs)
    with mock.patch.object(shelves, "_SLACK", slack):
        from_shelves = decided(fleet, demand)
    with mock.patch.object(supply, "_MOST_KINDS", -1):
        assert decided(fleet, demand) == from_shelves


@pytest.mark.parametrize("seed", range(6))
def test_long_shelves_are_tidied_up(seed: int) -> None:
    """500 machines of few kinds and 80 needs, so that fronts are used up again and again."""
    fleet, demand = random_case(seed, 500, 80)
    from_shelves = decided(fleet, demand)
    with mock.patch.object(supply, "_MOST_KINDS", -1):
        assert decided(fleet, demand) == from_shelves
