"""A machine's lifecycle is one table."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.model.errors import IllegalTransition
from bigfleet.model.machine import (
    TRANSITIONS,
    CapacityType,
    Machine,
    MachineEvent,
    MachineState,
    next_state,
    violations,
)
from bigfleet.model.resources import MAX_MACHINE_UNITS

IDLE = Machine(
    id="m-1",
    state=MachineState.IDLE,
    instance_type="m6i.large",
    zone="a",
    capacity_type=CapacityType.ON_DEMAND,
    price_per_hour=0.1,
    interruption_probability=0.0,
    resources={"cpu": 2000},
    allocatable={"cpu": 2000},
    host="rack-1/slot-2",
)


def test_transfer_between_clusters_passes_through_idle() -> None:
    """No event leads from CONFIGURED to CONFIGURING without an IDLE in between."""
    into_configuring = {
        s for (s, _), after in TRANSITIONS.items() if after is MachineState.CONFIGURING
    }
    assert into_configuring == {MachineState.IDLE}


def test_failed_is_not_a_dead_end() -> None:
    """A failed machine can be deleted or recover."""
    after = {TRANSITIONS[k] for k in TRANSITIONS if k[0] is MachineState.FAILED}
    assert after == {MachineState.DELETING, MachineState.IDLE}


def test_every_state_can_be_reached_and_left() -> None:
    """The table has no island and no sink."""
    assert {s for s, _ in TRANSITIONS} == set(MachineState)
    assert set(TRANSITIONS.values()) == set(MachineState)


def test_illegal_move_names_machine_state_and_event() -> None:
    """One error names the machine, its state, and what was requested."""
    with pytest.raises(IllegalTransition, match='m-1 is IDLE, which does not allow "drain req'):
        next_state("m-1", MachineState.IDLE, MachineEvent.DRAIN)


def test_a_sound_machine_has_no_violations() -> None:
    """The plain case is accepted."""
    assert not list(violations(IDLE))


@pytest.mark.parametrize(
    "broken",
    [
        replace(IDLE, id=""),
        replace(IDLE, state=MachineState.SPECULATIVE),
        replace(IDLE, cluster="a"),
        replace(IDLE, state=MachineState.CONFIGURED),
        replace(IDLE, state=MachineState.CONFIGURED, cluster="a", host=""),
        replace(IDLE, price_per_hour=math.nan),
        replace(IDLE, price_per_hour=-1.0),
        replace(IDLE, interruption_probability=math.nan),
        replace(IDLE, allocatable={"cpu": -1}),
        replace(IDLE, resources={"memory": 2**62}),
    ],
)
def test_impossible_machines_are_named(broken: Machine) -> None:
    """Each broken invariant yields exactly one sentence."""
    assert len(list(violations(broken))) == 1


@given(st.floats(), st.floats(), st.integers())
def test_whatever_a_provider_says_is_sound_or_named(
    price: float, probability: float, amount: int
) -> None:
    """Any number: without a message it is a valid one."""
    reported = replace(IDLE, price_per_hour=price, interruption_probability=probability,
                   allocatable={"x": amount})  # fmt: skip
    sound = 0 <= price < math.inf and 0 <= probability <= 1 and 0 <= amount <= MAX_MACHINE_UNITS
    sentences = list(violations(reported))
    assert (not sentences) == sound
    assert all("m-1" in sentence for sentence in sentences)
