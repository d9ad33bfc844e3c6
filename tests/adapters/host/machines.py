"""A machine that is being configured."""

from __future__ import annotations

from bigfleet.model.machine import CapacityType, Machine, MachineState

MACHINE = Machine(
    id="m-1",
    state=MachineState.CONFIGURING,
    instance_type="m6i.large",
    zone="zone-a",
    capacity_type=CapacityType.SPOT,
    price_per_hour=1.0,
    interruption_probability=0.0,
    resources={"cpu": 4_000, "memory": 2**20, "pods": 110_000},
    allocatable={"cpu": 3_900, "memory": 2**20, "pods": 110_000},
    labels={"topology.kubernetes.io/zone": "zone-a"},
    cluster="c",
)
