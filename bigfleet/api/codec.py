"""Wire messages to model records and back; everything received is validated here, once.

A message with an unknown enum value, a malformed quantity or an impossible number is refused as a
whole with InvalidInput, so that its receiver keeps the last good one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from bigfleet.api.v1alpha1 import capacity_pb2 as capacity
from bigfleet.api.v1alpha1 import provider_pb2 as provider
from bigfleet.model import penalty, resources
from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import CapacityType, Machine, MachineState, violations
from bigfleet.model.need import Need, Operator, Profile, Requirement, Spread, profile

_Enum = TypeVar("_Enum", Operator, MachineState, CapacityType)
_HARD = capacity.TopologySpread.DO_NOT_SCHEDULE
_SOFT = capacity.TopologySpread.SCHEDULE_ANYWAY
# Larger ones are read each time: what is remembered must stay small whatever is sent.
_USUAL_PROFILE_BYTES = 2048


def need_from_wire(message: capacity.CapacityNeed, where: str) -> Need:
    """A validated Need; `where` (such as `cluster a, need 3`) begins every error's text."""
    aggregate = _amounts(message.aggregate_resources, f"{where}: aggregate_resources")
    if not any(aggregate.values()):
        raise InvalidInput(f"{where}: aggregate_resources", aggregate, "ask for nothing")
    min_unit = _amounts(message.min_unit, f"{where}: min_unit")
    need = Need(_profile_from_wire(message, where), aggregate, min_unit, message.group)
    if need.stranded and need.profile.same_key is not None:
        cure = "names its domain with IN, not with SAME"
        raise InvalidInput(f"{where}: group", need.group, cure)
    return need


def _profile_from_wire(message: capacity.CapacityNeed, where: str) -> Profile:
    """Clusters ask for the same kinds: of 150,000 needs some hundred profiles are told apart."""
    kind = capacity.CapacityNeed(
        requirements=message.requirements,
        spread=message.spread,
        priority=message.priority,
        interruption_penalty_bucket=message.interruption_penalty_bucket,
        reclamation_penalty_bucket=message.reclamation_penalty_bucket,
    )
    wire_bytes = kind.SerializeToString(deterministic=True)
    if len(wire_bytes) > _USUAL_PROFILE_BYTES:
        return _profile_of(message, where)
    try:
        return _profile_in(wire_bytes)
    except InvalidInput:
        return _profile_of(message, where)  # refused again, now with its place named


@lru_cache(maxsize=2**14)
def _profile_in(wire_bytes: bytes) -> Profile:
    return _profile_of(capacity.CapacityNeed.FromString(wire_bytes), "")


def _profile_of(message: capacity.CapacityNeed, where: str) -> Profile:
    requirements = tuple(requirement_from_wire(r, where) for r in message.requirements)
    if sum(r.operator is Operator.SAME for r in requirements) > 1:
        raise InvalidInput(f"{where}: requirements", "SAME", "occurs twice; one domain key at most")
    return profile(
        requirements,
        tuple(_spread_from_wire(s, where) for s in message.spread),
        message.priority,
        _bucket(message.interruption_penalty_bucket, f"{where}: interruption_penalty_bucket"),
        _bucket(message.reclamation_penalty_bucket, f"{where}: reclamation_penalty_bucket"),
    )


def requirement_from_wire(message: capacity.NodeSelectorRequirement, where: str) -> Requirement:
    """A validated Requirement: IN and NOT_IN have values, the others none."""
    if not message.key:
        raise InvalidInput(f"{where}: requirement key", "", "is empty")
    operator = _known(Operator, message.operator, f"{where}: operator of {message.key}")
    values = tuple(sorted(set(message.values)))
    if (operator in (Operator.IN, Operator.NOT_IN)) != bool(values):
        cure = "needs values" if not values else "takes no values"
        raise InvalidInput(f"{where}: {message.key} {operator.name}", values, cure)
    return Requirement(message.key, operator, values)


def _spread_from_wire(message: capacity.TopologySpread, where: str) -> Spread:
    if not message.topology_key or message.max_skew < 1:
        shown = f"{message.topology_key}/{message.max_skew}"
        raise InvalidInput(f"{where}: spread", shown, "needs a topology_key and max_skew >= 1")
    if message.when_unsatisfiable not in (_HARD, _SOFT):
        value = int(message.when_unsatisfiable)
        raise InvalidInput(f"{where}: when_unsatisfiable", value, "is not a value known here")
    return Spread(message.topology_key, message.max_skew, message.when_unsatisfiable == _HARD)


def _bucket(value: int, what: str) -> int:
    if not penalty.ZERO <= value <= penalty.PINNED:
        raise InvalidInput(what, int(value), f"is not one of {penalty.ZERO} to {penalty.PINNED}")
    return int(value)


def _known(kind: Callable[[int], _Enum], value: int, what: str) -> _Enum:
    try:
        return kind(int(value))
    except ValueError:
        raise InvalidInput(what, int(value), "is not a value known here") from None


def _amounts(quantities: Mapping[str, str], where: str) -> dict[str, int]:
    try:
        return resources.parse_requests(quantities, resources.MAX_AGGREGATE_UNITS)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error.what}", error.value, error.cure) from None


def needs_from_wire(message: capacity.ClusterCapacityNeeds) -> dict[tuple[str, str], Need]:
    """A whole roll-up by need key; one bad or repeated need refuses all of it."""
    needs: dict[tuple[str, str], Need] = {}
    for number, raw in enumerate(message.needs):
        where = f"cluster {message.cluster_id}, need {number}"
        need = need_from_wire(raw, where)
        if needs.setdefault(need.key, need) is not need:
            raise InvalidInput(where, need.key, "repeats the profile and group of another need")
    return needs


def need_to_wire(need: Need) -> capacity.CapacityNeed:
    """The message that `need_from_wire` turns back into an equal Need."""
    kind = need.profile
    return capacity.CapacityNeed(
        requirements=requirements_to_wire(kind.requirements),
        aggregate_resources=resources.texts(need.aggregate),
        priority=kind.priority,
        spread=[
            capacity.TopologySpread(
                topology_key=s.topology_key,
                max_skew=s.max_skew,
                when_unsatisfiable=_HARD if s.hard else _SOFT,
            )
            for s in kind.spread
        ],
        interruption_penalty_bucket=capacity.PenaltyBucket.ValueType(kind.interruption_bucket),
        reclamation_penalty_bucket=capacity.PenaltyBucket.ValueType(kind.reclamation_bucket),
        min_unit=resources.texts(need.min_unit),
        group=need.group,
    )


def requirements_to_wire(
    requirements: Iterable[Requirement],
) -> Sequence[capacity.NodeSelectorRequirement]:
    """One message each, in the given order."""
    return [
        capacity.NodeSelectorRequirement(
            key=r.key,
            operator=capacity.NodeSelectorRequirement.Operator.ValueType(r.operator),
            values=r.values,
        )
        for r in requirements
    ]


def machine_from_wire(message: provider.Machine) -> Machine:
    """A validated Machine; without `allocatable` its `resources` stand in for it."""
    where = f"machine {message.id}"
    capacity_units = _capacity(message.resources, f"{where}: resources")
    machine = Machine(
        id=message.id,
        state=_known(MachineState, message.state, f"{where}: state"),
        instance_type=message.instance_type,
        zone=message.zone,
        capacity_type=_known(CapacityType, message.capacity_type, f"{where}: capacity_type"),
        price_per_hour=message.price_per_hour,
        interruption_probability=message.interruption_probability,
        resources=capacity_units,
        allocatable=_capacity(message.allocatable, f"{where}: allocatable") or capacity_units,
        labels=dict(message.labels),
        host=message.host.ref,
        cluster=message.cluster,
        last_error=message.last_error,
        shard_metadata=dict(message.shard_metadata),
    )
    for sentence in violations(machine):
        raise InvalidInput(where, machine.state.name, f"cannot be right: {sentence}")
    return machine


def _capacity(message: provider.Resources, where: str) -> Mapping[str, int]:
    try:
        return _amounts_in(message.SerializeToString())
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error.what}", error.value, error.cure) from None


@lru_cache(maxsize=4096)
def _amounts_in(wire_bytes: bytes) -> Mapping[str, int]:
    """What machines have; a fleet of 100,000 has some dozen sizes of them."""
    return resources.parse_capacity(provider.Resources.FromString(wire_bytes).resources)


def machine_to_wire(machine: Machine, provider_name: str) -> provider.Machine:
    """The message that `machine_from_wire` turns back into an equal Machine."""
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
    )
