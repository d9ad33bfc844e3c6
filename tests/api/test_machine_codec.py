"""A machine's message is validated once, and rejected when anything in it is invalid."""

from __future__ import annotations

import math

import pytest

from bigfleet.api import machine_codec
from bigfleet.api.v1alpha1 import provider_pb2 as provider
from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import CapacityType, Machine, MachineState
from bigfleet.model.need import Taint


def sound_machine() -> provider.Machine:
    return provider.Machine(
        id="m-1",
        state=provider.IDLE,
        host=provider.HostRef(provider="fake", ref="h-1"),
        capacity_type=provider.SPOT,
        price_per_hour=0.3,
        interruption_probability=0.3,
        resources=provider.Resources(resources={"cpu": "8", "memory": "32Gi"}),
    )


def test_machines_survive_the_wire() -> None:
    """A machine read back from its message equals the machine that was written."""
    machine = Machine(
        id="m-1",
        state=MachineState.CONFIGURED,
        instance_type="m6i.large",
        zone="a",
        capacity_type=CapacityType.SPOT,
        price_per_hour=0.25,
        interruption_probability=0.5,
        resources={"cpu": 8000, "memory": 2**25},
        allocatable={"cpu": 7900, "memory": 2**24},
        labels={"topology.bigfleet/rack": "a-1"},
        host="h-1",
        cluster="a",
        shard_metadata={"unknown/key": "kept"},
        taints=(Taint("gpu", "a100", "NoSchedule"), Taint("spot", "", "NoExecute")),
    )
    assert (
        machine_codec.machine_from_wire(machine_codec.machine_to_wire(machine, "fake")) == machine
    )


@pytest.mark.parametrize(
    "taints",
    [
        [{"key": "", "effect": "NoSchedule"}],
        [{"key": "a", "effect": "Never"}],
        [{"key": "a"}],
        [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "value": "b", "effect": "NoSchedule"}],
    ],
)
def test_a_taint_that_is_invalid_on_a_node_is_rejected(taints: list[dict[str, str]]) -> None:
    """A Node with it could not be registered, and pods would wait forever."""
    message = sound_machine()
    for taint in taints:
        message.taints.add(**taint)
    with pytest.raises(InvalidInput, match="machine m-1: taints"):
        machine_codec.machine_from_wire(message)


def test_without_allocatable_the_resources_count() -> None:
    """A provider that reports no allocatable offers all of its resources."""
    machine = machine_codec.machine_from_wire(sound_machine())
    assert machine.allocatable == machine.resources == {"cpu": 8000, "memory": 2**25}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state", 42),
        ("state", 0),
        ("capacity_type", 9),
        ("price_per_hour", math.nan),
        ("price_per_hour", -1.0),
        ("interruption_probability", 1.5),
        ("cluster", "a"),
        ("id", ""),
    ],
)
def test_an_inconsistent_machine_is_rejected(field: str, value: object) -> None:
    """Unknown states, prices that are not numbers and violated invariants are rejected."""
    message = sound_machine()
    setattr(message, field, value)
    with pytest.raises(InvalidInput):
        machine_codec.machine_from_wire(message)
