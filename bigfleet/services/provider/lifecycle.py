"""Effects of orders on a machine: pure functions over the transitions of `model.machine`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bigfleet.model.errors import IllegalTransition
from bigfleet.model.machine import (
    TRANSITIONAL,
    TRANSITIONS,
    Machine,
    MachineEvent,
    MachineState,
    next_state,
)

_E = MachineEvent

# The event that ends an operation successfully, by the state while it is under way.
SUCCESS: Mapping[MachineState, MachineEvent] = {
    state: event
    for state, event in TRANSITIONS
    if state in TRANSITIONAL and event is not MachineEvent.FAIL
}
# For each order: the state while it is under way, and its target state.
ORDERS: Mapping[MachineEvent, tuple[MachineState, MachineState]] = {
    event: (under_way, TRANSITIONS[under_way, SUCCESS[under_way]])
    for (_, event), under_way in TRANSITIONS.items()
    if under_way in TRANSITIONAL
}
_UNBIND: Mapping[str, Any] = {"cluster": "", "shard_metadata": {}}


@dataclass(frozen=True, slots=True)
class Record:
    """A machine and the last operation that was started on it.

    `due_unix_seconds` is when the simulated latency of that operation has passed. A drain waits
    for the removal of the Node until `grace_ends_unix_seconds`. The store sets `revision`.
    """

    machine: Machine
    operations_started: int = 0
    due_unix_seconds: float = 0.0
    grace_ends_unix_seconds: float = 0.0
    bootstrap_blob: bytes = field(default=b"", repr=False)
    revision: int = 0

    @property
    def operation_id(self) -> str:
        """Id of the last operation; number 0 is the machine's insertion into the store."""
        return f"{self.machine.id}.{self.operations_started}"


@dataclass(frozen=True, slots=True)
class Order:
    """An order of a shard. `cluster` and `bootstrap_blob` are for CONFIGURE, `shard_metadata` for
    CONFIGURE and CREATE, `grace_seconds` for DRAIN.
    """

    event: MachineEvent
    cluster: str = ""
    bootstrap_blob: bytes = field(default=b"", repr=False)
    shard_metadata: Mapping[str, str] = field(default_factory=dict)
    grace_seconds: int = 0


def accept(record: Record, order: Order, now_unix_seconds: float, latency_seconds: float) -> Record:
    """The record once `order` is under way; `record` itself if the order is a repetition.

    IllegalTransition when the machine's state does not allow the order.
    """
    if _repeats(record.machine, order):
        return record
    machine = record.machine
    state = next_state(machine.id, machine.state, order.event)
    if order.event is _E.DELETE and not machine.capacity_type.elastic:
        capacity_type = machine.capacity_type.name
        raise IllegalTransition(
            f"machine {machine.id}",
            machine.state.name,
            order.event.value,
            f"{capacity_type} capacity is fixed",
        )
    return Record(
        replace(machine, state=state, last_error="", **_binding(order)),
        operations_started=record.operations_started + 1,
        due_unix_seconds=now_unix_seconds + latency_seconds,
        grace_ends_unix_seconds=now_unix_seconds + order.grace_seconds,
        bootstrap_blob=order.bootstrap_blob,
    )


def _repeats(machine: Machine, order: Order) -> bool:
    """Whether the machine is in the order's target state, or an equal order is under way.

    An order for another cluster is not a repetition.
    """
    return machine.state in ORDERS[order.event] and order.cluster in ("", machine.cluster)


def _binding(order: Order) -> Mapping[str, Any]:
    if order.event is _E.CREATE:
        return {"shard_metadata": dict(order.shard_metadata)}
    if order.event is _E.CONFIGURE:
        return {"cluster": order.cluster, "shard_metadata": dict(order.shard_metadata)}
    return _UNBIND if order.event is _E.DELETE else {}


def finish(record: Record) -> Record:
    """The record once the operation under way has succeeded."""
    machine = record.machine
    event = SUCCESS[machine.state]
    effects: Mapping[MachineEvent, Mapping[str, Any]] = {
        _E.CREATED: {"host": machine.id},
        _E.JOINED: {},
        _E.DRAINED: _UNBIND,
        _E.DELETED: {"host": ""},
    }
    state = next_state(machine.id, machine.state, event)
    done = replace(machine, state=state, **effects[event])
    return replace(record, machine=done, bootstrap_blob=b"")


def recover(record: Record) -> Record:
    """The record once a failed machine is repaired: idle and unbound."""
    machine = record.machine
    state = next_state(machine.id, machine.state, _E.RECOVER)
    host = machine.host or machine.id
    return replace(
        record, machine=replace(machine, state=state, host=host, last_error="", **_UNBIND)
    )


def fail(record: Record, reason: str) -> Record:
    """The record once the operation under way has failed; the binding stays, as a Node may too."""
    machine = record.machine
    state = next_state(machine.id, machine.state, _E.FAIL)
    return replace(
        record, machine=replace(machine, state=state, last_error=reason), bootstrap_blob=b""
    )
