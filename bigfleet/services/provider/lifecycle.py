"""What an order makes of a machine: pure functions over the lifecycle table of `model.machine`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bigfleet.model.errors import IllegalTransition
from bigfleet.model.machine import Machine, MachineEvent, MachineState, next_state

_S, _E = MachineState, MachineEvent

# For each order: the state while it is under way, and the state that it aims at.
ORDERS: Mapping[MachineEvent, tuple[MachineState, MachineState]] = {
    _E.CREATE: (_S.CREATING, _S.IDLE),
    _E.CONFIGURE: (_S.CONFIGURING, _S.CONFIGURED),
    _E.DRAIN: (_S.DRAINING, _S.IDLE),
    _E.DELETE: (_S.DELETING, _S.SPECULATIVE),
}
# How the operation under way ends when all goes well.
SUCCESS: Mapping[MachineState, MachineEvent] = {
    _S.CREATING: _E.CREATED,
    _S.CONFIGURING: _E.JOINED,
    _S.DRAINING: _E.DRAINED,
    _S.DELETING: _E.DELETED,
}
_UNBIND: Mapping[str, Any] = {"cluster": "", "shard_metadata": {}}


@dataclass(frozen=True, slots=True)
class Record:
    """A machine and the last operation that was started on it.

    `due_unix_seconds` is when the modelled latency of that operation has passed; a drain waits for
    the machine's Node no longer than until `grace_ends_unix_seconds`. The store sets `revision`.
    """

    machine: Machine
    operations_started: int = 0
    due_unix_seconds: float = 0.0
    grace_ends_unix_seconds: float = 0.0
    bootstrap_blob: bytes = field(default=b"", repr=False)
    revision: int = 0

    @property
    def operation_id(self) -> str:
        """The last operation's name; number 0 stands for the machine's coming into the store."""
        return f"{self.machine.id}.{self.operations_started}"


@dataclass(frozen=True, slots=True)
class Order:
    """What a shard asks for. `cluster` and `bootstrap_blob` go with CONFIGURE, `shard_metadata`
    with that and with CREATE, `grace_seconds` with DRAIN.
    """

    event: MachineEvent
    cluster: str = ""
    bootstrap_blob: bytes = field(default=b"", repr=False)
    shard_metadata: Mapping[str, str] = field(default_factory=dict)
    grace_seconds: int = 0


def accept(record: Record, order: Order, now_unix_seconds: float, latency_seconds: float) -> Record:
    """The record once `order` is under way; `record` itself if the order asks for nothing new.

    IllegalTransition where the machine's state does not allow the order.
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
            f"{capacity_type} stays ours",
        )
    return Record(
        replace(machine, state=state, last_error="", **_binding(order)),
        operations_started=record.operations_started + 1,
        due_unix_seconds=now_unix_seconds + latency_seconds,
        grace_ends_unix_seconds=now_unix_seconds + order.grace_seconds,
        bootstrap_blob=order.bootstrap_blob,
    )


def _repeats(machine: Machine, order: Order) -> bool:
    """Whether the machine already is where `order` would bring it, or on its way by such an order.

    The same machine for another cluster is another target.
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
    """The record once a failed machine is well again: free, for whoever wants it."""
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
