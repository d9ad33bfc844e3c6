"""An inconsistent snapshot is rejected by name, and a consistent one is always decided."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bigfleet.engine.checks.validation import MAX_UNITS_OF_A_SIZE
from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decide import decide
from bigfleet.engine.snapshot import Demand, EngineConfig, Fleet, VictimWeights
from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import CapacityType
from bigfleet.model.need import (
    MAX_PODS_OF_A_SIZE,
    Need,
    Size,
    Spread,
    profile,
    sizes_of_aggregate,
)
from bigfleet.model.resources import MAX_MACHINE_UNITS
from tests.engine.engine_pods import pods
from tests.engine.engine_random import random_case, random_cycle_memory
from tests.engine.engine_rig import (
    NOW,
    SETTINGS,
    checked,
    configured,
    demand_of,
    fleet_of,
    idle,
    need_of,
    same,
)

FLEET = fleet_of([idle("a"), configured("b")])
OPTIONAL = ("backed_off", "backed_off_for", "backed_off_for_too")
DEMAND = demand_of(FLEET, [("east", need_of(4)), ("east", need_of(4, group="g"))])


def with_flavour(**changes: object) -> Fleet:
    """The fleet with another first flavour."""
    first = replace(FLEET.flavours[0], **changes)  # type: ignore[arg-type]
    return replace(FLEET, flavours=[first, *FLEET.flavours[1:]])


def with_column(name: str, *values: float) -> Fleet:
    """The fleet with another column."""
    column = np.array(values, getattr(FLEET, name).dtype)
    return replace(FLEET, **{name: column})  # type: ignore[arg-type]


def with_need(need: Need) -> Demand:
    """The demand with another first need."""
    return replace(DEMAND, needs=[need, DEMAND.needs[1]])


def need_with(**changes: object) -> Need:
    """The first need with another profile."""
    return replace(DEMAND.needs[0], profile=replace(DEMAND.needs[0].profile, **changes))  # type: ignore[arg-type]


def sized(pods: int, **amounts: int) -> Need:
    """The first need with one size only."""
    return replace(DEMAND.needs[0], sizes=(Size(tuple(amounts.items()), pods),))


@pytest.mark.parametrize(
    ("fleet", "message"),
    [
        (with_flavour(price_per_hour=math.nan), "flavour 0: price_per_hour: nan is not a finite"),
        (with_flavour(price_per_hour=math.inf), "price_per_hour: inf"),
        (with_flavour(price_per_hour=-1.0), "price_per_hour: -1.0"),
        (with_flavour(interruption_probability=math.nan), "interruption_probability: nan"),
        (with_flavour(interruption_probability=1.5), "interruption_probability: 1.5"),
        (with_flavour(allocatable={"cpu": -1}), "flavour 0: allocatable: cpu: -1 is not in 0"),
        (with_flavour(allocatable={"memory": 2**62}), f"memory: {2**62} is not in"),
        (with_column("state", 0, 5), "row 0: state: 0 is not in 1..8"),
        (with_column("state", 3, 9), "row 1: state: 9"),
        (with_column("flavour", 0, 7), "row 1: flavour: 7"),
        (with_column("cluster", -2, 0), "row 0: cluster: -2"),
        (with_column("last_claimed_by", -1, 2), "row 1: last_claimed_by: 2"),
        (with_column("interruption_bucket", 28, 1), "interruption_bucket: 28"),
        (with_column("reclamation_bucket", 1, 99), "row 1: reclamation_bucket: 99"),
        (with_column("destination", -2, 0), "row 0: destination: -2"),
        (with_column("destination", -1, 2), "row 1: destination: 2"),
        (with_column("cluster", 0, -1), "row 1: state: 'CONFIGURED' requires a cluster"),
        (with_column("disruption_cost", 0, -0.5), "disruption_cost: -0.5 is not >= 0"),
        (with_column("headroom", 1), "fleet: headroom: 1 entries for 2 machines"),
        (with_column("tie_break", 4, 4), "tie_break: 4 is not unique"),
        (with_column("priority", 1), "fleet: priority: 1 entries for 2 machines"),
    ],
)  # fmt: skip
def test_an_impossible_fleet_is_refused_by_name(fleet: Fleet, message: str) -> None:
    """The flavour or row, the value, and what is valid."""
    with pytest.raises(InvalidInput) as refused:
        decide(fleet, DEMAND, CycleMemory(), EngineConfig(), NOW)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("demand", "message"),
    [
        (with_need(sized(1, cpu=-1)), "size 0: cpu: -1"),
        (with_need(sized(1, cpu=MAX_UNITS_OF_A_SIZE + 1)), "size 0: cpu"),
        (with_need(sized(1, cpu=0)), "size 0: {'cpu': 0} requests nothing"),
        (with_need(sized(1)), "size 0: {} requests nothing"),
        (with_need(sized(0, cpu=1)), "size 0: pods: 0 is not in 1.."),
        (with_need(sized(MAX_PODS_OF_A_SIZE + 1, cpu=1)), "size 0: pods: 2147483648"),
        (with_need(need_with(priority=2**31)), "priority: 2147483648 does not fit into 32 bits"),
        (with_need(need_with(priority=-1)), "need 1: priority: 0 follows -1"),
        (with_need(need_with(interruption_bucket=28)), "penalty bucket: 28"),
        (with_need(need_with(spread=(Spread("zone", 0, True),))), "max_skew: 0 is not >= 1"),
        (replace(DEMAND, cluster=np.array([0], np.int32)), "demand: cluster: 1 entries"),
        (replace(DEMAND, number=np.array([0], np.int32)), "demand: number: 1 entries for 2"),
        (replace(DEMAND, cluster=np.array([0, 5], np.int32)), "row 1: cluster of the need: 5"),
    ],
)  # fmt: skip
def test_an_impossible_demand_is_refused_by_name(demand: Demand, message: str) -> None:
    """The need, the value, and what is valid."""
    with pytest.raises(InvalidInput) as refused:
        decide(FLEET, demand, CycleMemory(), EngineConfig(), NOW)
    assert message in str(refused.value)


@pytest.mark.parametrize("now", [math.nan, math.inf])
def test_a_clock_that_shows_no_time_is_refused(now: float) -> None:
    """All holds would be over, or none."""
    with pytest.raises(InvalidInput, match="now_seconds"):
        decide(FLEET, DEMAND, CycleMemory(), EngineConfig(), now)


def test_a_sum_beyond_64_bits_is_refused() -> None:
    """An integer overflow would make a full domain look empty."""
    huge = with_flavour(allocatable={"memory": MAX_MACHINE_UNITS})
    rows = 2**20
    columns = {
        name: np.resize(getattr(huge, name), rows)
        for name in Fleet.__dataclass_fields__
        if name not in ("flavours", "clusters", "tie_break", *OPTIONAL)
    }
    fleet = Fleet(huge.flavours, huge.clusters, tie_break=np.arange(rows), **columns)
    with pytest.raises(InvalidInput, match="overflows when summed over 1048576 machines"):
        decide(fleet, DEMAND, CycleMemory(), EngineConfig(), NOW)


def test_the_largest_machines_and_needs_there_can_be_are_summed_exactly() -> None:
    """Twelve thousand machines of 8 PiB in one domain; one gang wants nearly all of it."""
    rows = 12_000
    kind = {"memory": MAX_MACHINE_UNITS}
    one = fleet_of([idle("a", cpu=1, labels={"rack": "r"}, more=kind)])
    columns = {
        name: np.resize(getattr(one, name), rows)
        for name in Fleet.__dataclass_fields__
        if name not in ("flavours", "clusters", "tie_break", *OPTIONAL)
    }
    fleet = Fleet(one.flavours, one.clusters, tie_break=np.arange(rows), **columns)
    gang = pods((rows - 1, 0, MAX_MACHINE_UNITS), (1, 1, 1), requirements=(same(),))
    decision = decide(fleet, demand_of(fleet, [("east", gang)]), CycleMemory(), EngineConfig(), NOW)
    assert (len(decision.actions), decision.shortfalls) == (rows, [])


@pytest.mark.parametrize(
    ("name", "value"),
    [("reclaim_margin", -0.1), ("price_tolerance", 1.5), ("reacquire_seconds", -1.0),
     ("reclaim_cap_fraction", math.nan), ("reclaim_cap_fraction", 1.1),
     ("reclaim_hold_seconds", -1.0), ("reservation_seconds", math.nan),
     ("voluntary_grace_seconds", -5), ("idle_hold_seconds", {CapacityType.SPOT: math.nan})],
)  # fmt: skip
def test_senseless_settings_are_refused(name: str, value: object) -> None:
    """By the name of the setting."""
    with pytest.raises(InvalidInput, match=name):
        EngineConfig(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("weight", [math.nan, math.inf, -1.0])
def test_senseless_weights_are_refused(weight: float) -> None:
    """With a NaN the order of victims would be arbitrary."""
    with pytest.raises(InvalidInput, match="victim weight drain"):
        VictimWeights(drain=weight)


_JUNK = st.one_of(
    st.integers(-(2**62), 2**62),
    st.sampled_from([0, -1, 2**31, 2**43, 2**61, 2**62]),
)


@hypothesis_settings(max_examples=80)
@example(0, "state", [(0, 5)], None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(["flavour", "state", "cluster", "last_claimed_by", "priority",
                     "interruption_bucket", "reclamation_bucket", "unused_since_seconds",
                     "tie_break", "destination", "disruption_cost", "headroom"]),
    st.lists(st.tuples(st.integers(0, 19), st.integers(-300, 300)), min_size=1, max_size=4),
    st.sampled_from([None, math.nan, math.inf, -math.inf]),
)  # fmt: skip
def test_damaged_rows_are_refused_or_harmless(
    seed: int, name: str, damage: list[tuple[int, int]], not_a_number: float | None
) -> None:
    """No damage to a column leads to anything but InvalidInput or a sound decision."""
    fleet, demand = random_case(seed, 20, 4)
    column = getattr(fleet, name).copy()
    for row, value in damage:
        wild = not_a_number if column.dtype.kind == "f" and not_a_number is not None else value
        column[row] = wild if column.dtype.kind == "f" else np.array(wild).astype(column.dtype)
    damaged = replace(fleet, **{name: column})
    with suppress(InvalidInput):
        checked(damaged, demand, SETTINGS, cycle_memory=random_cycle_memory(seed, fleet, demand))


@hypothesis_settings(max_examples=80)
@given(
    st.integers(0, 2**32),
    st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "x"]), _JUNK, max_size=4),
    st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "x"]), _JUNK, max_size=4),
    st.integers(-(2**40), 2**40),
)
def test_damaged_needs_are_refused_or_harmless(
    seed: int, aggregate: dict[str, int], min_unit: dict[str, int], priority: int
) -> None:
    """Amounts up to 2^62, units larger than the total, nothing at all: rejected or decided."""
    fleet, demand = random_case(seed, 20, 3)
    kind = profile((), (), priority, 1, 1)
    needs = sorted([*demand.needs, Need(kind, sizes_of_aggregate(aggregate, min_unit))],
                   key=lambda need: -need.profile.priority)  # fmt: skip
    damaged = replace(demand, needs=needs, cluster=np.zeros(4, np.int32))
    with suppress(InvalidInput):
        checked(fleet, damaged, SETTINGS)


def test_very_many_profiles_are_only_more_of_the_same() -> None:
    """Each of a profile of its own, and nearly all of them short: still one pass."""
    fleet = fleet_of([idle(f"i{n}") for n in range(5)])
    needs = [("east", need_of(4, priority=-n)) for n in range(2_000)]
    decision = decide(fleet, demand_of(fleet, needs), CycleMemory(), EngineConfig(), NOW)
    assert ([a.need for a in decision.actions], len(decision.shortfalls)) == ([*range(5)], 1_995)
