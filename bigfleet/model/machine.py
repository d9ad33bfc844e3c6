"""A machine, and the state transitions of its lifecycle.

A machine that moves between clusters always passes through IDLE. A provider may report a transition
that is not in the table, and the report is adopted; the table limits what may be requested.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from bigfleet.model.errors import IllegalTransition
from bigfleet.model.need import Taint
from bigfleet.model.resources import MAX_MACHINE_UNITS


class MachineState(IntEnum):
    """Values are those of the wire enum of the same name."""

    SPECULATIVE = 1
    CREATING = 2
    IDLE = 3
    CONFIGURING = 4
    CONFIGURED = 5
    DRAINING = 6
    DELETING = 7
    FAILED = 8


class CapacityType(IntEnum):
    """How a machine is paid for; values are those of the wire enum of the same name."""

    BARE_METAL = 1
    RESERVED = 2
    ON_DEMAND = 3
    SPOT = 4

    @property
    def elastic(self) -> bool:
        """Whether idle machines are returned to the provider; fixed ones stay in the fleet."""
        return self in (CapacityType.ON_DEMAND, CapacityType.SPOT)


class MachineEvent(Enum):
    """What can happen to a machine; the values are for messages."""

    CREATE = "create requested"
    CREATED = "creation finished"
    CONFIGURE = "configure requested"
    JOINED = "Node became ready"
    DRAIN = "drain requested"
    DRAINED = "drain finished"
    DELETE = "delete requested"
    DELETED = "deletion finished"
    FAIL = "failed"
    RECOVER = "recovered"


_S, _E = MachineState, MachineEvent

TRANSITIONS: Mapping[tuple[MachineState, MachineEvent], MachineState] = {
    (_S.SPECULATIVE, _E.CREATE): _S.CREATING,
    (_S.CREATING, _E.CREATED): _S.IDLE,
    (_S.IDLE, _E.CONFIGURE): _S.CONFIGURING,
    (_S.CONFIGURING, _E.JOINED): _S.CONFIGURED,
    (_S.CONFIGURED, _E.DRAIN): _S.DRAINING,
    (_S.DRAINING, _E.DRAINED): _S.IDLE,
    (_S.IDLE, _E.DELETE): _S.DELETING,
    (_S.DELETING, _E.DELETED): _S.SPECULATIVE,
    (_S.CREATING, _E.FAIL): _S.FAILED,
    (_S.CONFIGURING, _E.FAIL): _S.FAILED,
    (_S.CONFIGURED, _E.FAIL): _S.FAILED,
    (_S.DRAINING, _E.FAIL): _S.FAILED,
    (_S.DELETING, _E.FAIL): _S.FAILED,
    (_S.FAILED, _E.DELETE): _S.DELETING,
    (_S.FAILED, _E.RECOVER): _S.IDLE,
}

# Of a machine's id, which becomes the name of its Node and of a ServiceAccount.
MAX_ID_BYTES = 36
VALID_ID = f"1 to {MAX_ID_BYTES} of a-z, 0-9, '-' and '.', as in a Node name (DNS-1123)"
_DNS_1123 = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")

TRANSITIONAL = frozenset({_S.CREATING, _S.CONFIGURING, _S.DRAINING, _S.DELETING})
BOUND = frozenset({_S.CONFIGURING, _S.CONFIGURED, _S.DRAINING})
UNBOUND = frozenset({_S.SPECULATIVE, _S.CREATING, _S.IDLE, _S.DELETING})
HOSTLESS = frozenset({_S.SPECULATIVE, _S.CREATING})


def is_valid_id(machine_id: str) -> bool:
    """Whether an id is short enough and a valid Node name: see VALID_ID."""
    return len(machine_id) <= MAX_ID_BYTES and _DNS_1123.fullmatch(machine_id) is not None


def next_state(name: str, state: MachineState, event: MachineEvent) -> MachineState:
    """The state after `event`; IllegalTransition names the machine, its state and the event."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        allowed = ", ".join(e.value for s, e in TRANSITIONS if s is state)
        raise IllegalTransition(
            f"machine {name}", state.name, event.value, f"allowed: {allowed or 'nothing'}"
        ) from None


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine as its provider reports it; resources in the units of `model.resources`."""

    id: str
    state: MachineState
    instance_type: str
    zone: str
    capacity_type: CapacityType
    #: dollars
    price_per_hour: float
    #: per hour
    interruption_probability: float
    resources: Mapping[str, int]
    #: the part of `resources` that pods may use
    allocatable: Mapping[str, int]
    labels: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    cluster: str = ""
    last_error: str = ""
    shard_metadata: Mapping[str, str] = field(default_factory=dict)
    #: permanent taints of its Node
    taints: tuple[Taint, ...] = ()
    #: of the record that it was read from, 31 bits; 0 if unknown
    digest: int = field(default=0, compare=False)


def violations(machine: Machine) -> Iterator[str]:
    """One message for each invariant that `machine` breaks."""
    name = f"machine {machine.id}"
    if not machine.id:
        yield "a machine has no id"
    if machine.state in HOSTLESS and machine.host:
        yield f"{name} is {machine.state.name} but has a host"
    if machine.state in BOUND and not machine.cluster:
        yield f"{name} is {machine.state.name} but has no cluster"
    if machine.state in BOUND and not machine.host:
        yield f"{name} is {machine.state.name} but has no host that could have joined a cluster"
    if machine.state in UNBOUND and machine.cluster:
        yield f"{name} is {machine.state.name} but belongs to cluster {machine.cluster}"
    yield from _impossible_numbers(machine, name)


def _impossible_numbers(machine: Machine, name: str) -> Iterator[str]:
    if not (math.isfinite(machine.price_per_hour) and machine.price_per_hour >= 0):
        yield f"{name}: price_per_hour {machine.price_per_hour} is not a finite amount >= 0"
    if not 0 <= machine.interruption_probability <= 1:
        yield f"{name}: interruption_probability {machine.interruption_probability} is not in 0..1"
    for resource, amount in {**machine.resources, **machine.allocatable}.items():
        if not 0 <= amount <= MAX_MACHINE_UNITS:
            yield f"{name}: {resource} is {amount}, not in 0..{MAX_MACHINE_UNITS}"
