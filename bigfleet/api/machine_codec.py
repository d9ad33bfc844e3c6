"""Machines to and from wire messages; everything received is validated here, once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from bigfleet.api.enums import enum_member
from bigfleet.api.v1alpha1 import capacity_pb2 as capacity
from bigfleet.api.v1alpha1 import provider_pb2 as provider
from bigfleet.model import resources
from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import CapacityType, Machine, MachineState, violations
from bigfleet.model.need import Taint

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def machine_from_wire(message: provider.Machine, digest: int = 0) -> Machine:
    """A validated Machine; `allocatable` defaults to `resources`."""
    try:
        machine = _machine_from_wire(message, digest)
    except InvalidInput as error:
        where = f"machine {message.id}: {error.what}"
        raise InvalidInput(where, error.value, error.hint) from None
    for violation in violations(machine):
        what = f"machine {message.id}"
        raise InvalidInput(what, machine.state.name, f"is inconsistent: {violation}")
    return machine


def _machine_from_wire(message: provider.Machine, digest: int) -> Machine:
    capacity_units = _capacity(message.resources, "resources")
    return Machine(
        id=message.id,
        state=enum_member(MachineState, message.state, "state"),
        instance_type=message.instance_type,
        zone=message.zone,
        capacity_type=enum_member(CapacityType, message.capacity_type, "capacity_type"),
        price_per_hour=message.price_per_hour,
        interruption_probability=message.interruption_probability,
        resources=capacity_units,
        allocatable=_capacity(message.allocatable, "allocatable") or capacity_units,
        labels=dict(message.labels),
        host=message.host.ref,
        cluster=message.cluster,
        last_error=message.last_error,
        shard_metadata=dict(message.shard_metadata),
        taints=taints_from_wire(message.taints, "taints") if message.taints else (),
        digest=digest,
    )


def _capacity(message: provider.Resources, where: str) -> Mapping[str, int]:
    try:
        return _amounts_in(message.SerializeToString())
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error.what}", error.value, error.hint) from None


@lru_cache(maxsize=4096)
def _amounts_in(wire_bytes: bytes) -> Mapping[str, int]:
    """Cached: a fleet of 100,000 machines has a few dozen sizes."""
    return resources.parse_capacity(provider.Resources.FromString(wire_bytes).resources)


def machine_to_wire(machine: Machine, provider_name: str) -> provider.Machine:
    """The message for `machine`; `machine_from_wire` is the inverse."""
    return provider.Machine(
        id=machine.id,
        state=provider.MachineState.ValueType(machine.state),
        host=provider.HostRef(provider=provider_name, ref=machine.host) if machine.host else None,
        instance_type=machine.instance_type,
        zone=machine.zone,
        capacity_type=provider.CapacityType.ValueType(machine.capacity_type),
        price_per_hour=machine.price_per_hour,
        interruption_probability=machine.interruption_probability,
        resources=provider.Resources(resources=resources.texts(machine.resources)),
        labels=machine.labels,
        last_error=machine.last_error,
        allocatable=provider.Resources(resources=resources.texts(machine.allocatable)),
        cluster=machine.cluster,
        shard_metadata=machine.shard_metadata,
        taints=taints_to_wire(machine.taints),
    )


def taints_from_wire(messages: Iterable[capacity.Taint], where: str) -> tuple[Taint, ...]:
    """Validated, sorted taints; as on a Node, one for each key and effect."""
    taints = sorted(Taint(t.key, t.value, t.effect) for t in messages)
    for taint in taints:
        if not taint.key or taint.effect not in TAINT_EFFECTS:
            raise InvalidInput(where, str(taint), f"needs a key and one of {TAINT_EFFECTS}")
    if len({(taint.key, taint.effect) for taint in taints}) < len(taints):
        raise InvalidInput(where, [str(taint) for taint in taints], "name a key and effect twice")
    return tuple(taints)


def taints_to_wire(taints: Iterable[Taint]) -> Sequence[capacity.Taint]:
    """One message each."""
    return [capacity.Taint(key=t.key, value=t.value, effect=t.effect) for t in taints]
