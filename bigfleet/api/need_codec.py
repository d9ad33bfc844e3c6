"""Needs to and from wire messages; everything received is validated here, once.

A message with an unknown enum value, a malformed quantity or an out-of-range number is rejected as
a whole with InvalidInput, so that its receiver keeps the last valid one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import gcd

from bigfleet.api.enums import enum_member
from bigfleet.api.v1alpha1 import capacity_pb2 as capacity
from bigfleet.model import penalty, resources
from bigfleet.model.errors import InvalidInput
from bigfleet.model.group import Additional, FoldedGangs, group_of_text, group_text
from bigfleet.model.integers import is_integer
from bigfleet.model.need import (
    MAX_PODS_OF_A_SIZE,
    MAX_SIZES_OF_A_NEED,
    Need,
    Operator,
    Profile,
    Requirement,
    Size,
    Spread,
    Term,
    Toleration,
    profile,
    sizes_of,
    sizes_of_aggregate,
)

_HARD = capacity.TopologySpread.DO_NOT_SCHEDULE
_SOFT = capacity.TopologySpread.SCHEDULE_ANYWAY
# Larger profiles are decoded each time, to bound the cache whatever is sent.
_MAX_CACHED_PROFILE_BYTES = 2048


def need_from_wire(message: capacity.CapacityNeed, where: str) -> Need:
    """A validated Need; `where` (such as `cluster a, need 3`) prefixes every error."""
    aggregate = _amounts(message.aggregate_resources, f"{where}: aggregate_resources")
    min_unit = _amounts(message.min_unit, f"{where}: min_unit")
    if message.HasField("sizes"):
        sizes = sizes_from_wire(message.sizes, f"{where}: sizes")
    else:
        sizes = sizes_of_aggregate(aggregate, min_unit)
    if not sizes:
        raise InvalidInput(f"{where}: aggregate_resources", aggregate, "request nothing")
    need = Need(_profile_from_wire(message, where), sizes, group_of_text(message.group))
    match need.group:
        case FoldedGangs():
            hint = "begins with 'folded:', as only the groups do that a shard makes"
            raise InvalidInput(f"{where}: group", message.group[:80], hint)
        case Additional() if need.profile.same_key is not None:
            hint = "must name its domain with IN, not with SAME"
            raise InvalidInput(f"{where}: group", message.group, hint)
    return need


def key_from_wire(message: capacity.CapacityNeed) -> tuple[str, str] | None:
    """The Need's key, even when its sizes are invalid; None when its profile is invalid."""
    try:
        return _profile_from_wire(message, "").fingerprint, message.group
    except InvalidInput:
        return None


def sizes_from_wire(message: capacity.PodSizes, where: str) -> tuple[Size, ...]:
    """Validated sizes in canonical order; at least one pod of some size."""
    names, counts = list(message.resources), list(message.counts)
    if len(set(names)) != len(names) or not all(names):
        raise InvalidInput(f"{where}.resources", names, "are not distinct names")
    if len(message.amounts) != len(names) * len(counts):
        hint = f"are not {len(names)} for each of {len(counts)} sizes"
        raise InvalidInput(f"{where}.amounts", len(message.amounts), hint)
    if len(counts) > MAX_SIZES_OF_A_NEED:
        hint = f"sizes are more than {MAX_SIZES_OF_A_NEED}; merge those that differ little"
        raise InvalidInput(where, len(counts), hint)
    steps = list(message.steps) or [1] * len(names)
    if len(steps) != len(names):
        raise InvalidInput(f"{where}.steps", len(steps), f"are not one for each of {names}")
    _refuse_outside(counts, 1, MAX_PODS_OF_A_SIZE, f"{where}.counts")
    _refuse_outside(steps, 1, resources.MAX_MACHINE_UNITS, f"{where}.steps")
    amounts = [n * step for n, step in zip(message.amounts, steps * len(counts), strict=True)]
    _refuse_outside(amounts, 0, resources.MAX_MACHINE_UNITS, f"{where}.amounts")
    rows = (amounts[at * len(names) : (at + 1) * len(names)] for at in range(len(counts)))
    sizes = sizes_of(
        (dict(zip(names, row, strict=True)), count) for row, count in zip(rows, counts, strict=True)
    )
    if not sizes or sum(size.pods for size in sizes) != sum(counts):
        raise InvalidInput(f"{where}.amounts", 0, "are all the amounts of a size")
    # Equal sizes have been merged.
    _refuse_outside((size.pods for size in sizes), 1, MAX_PODS_OF_A_SIZE, f"{where}.counts")
    return sizes


def _refuse_outside(numbers: Iterable[int], least: int, most: int, where: str) -> None:
    for number in numbers:
        if not least <= number <= most:
            raise InvalidInput(where, number, f"is not in {least}..{most}")


def sizes_to_wire(sizes: Iterable[Size]) -> capacity.PodSizes:
    """The message for `sizes`; `sizes_from_wire` is the inverse."""
    listed = list(sizes)
    names = sorted({name for size in listed for name, _ in size.amounts})
    rows = [dict(size.amounts) for size in listed]
    steps = [gcd(*(row.get(name, 0) for row in rows)) or 1 for name in names]
    columns = list(zip(names, steps, strict=True))
    return capacity.PodSizes(
        resources=names,
        amounts=[row.get(name, 0) // step for row in rows for name, step in columns],
        counts=[size.pods for size in listed],
        steps=steps,
    )


def _profile_from_wire(message: capacity.CapacityNeed, where: str) -> Profile:
    """Cached: clusters have the same profiles, a few hundred among 150,000 needs."""
    fields = capacity.CapacityNeed(
        requirements=message.requirements,
        spread=message.spread,
        priority=message.priority,
        interruption_penalty_bucket=message.interruption_penalty_bucket,
        reclamation_penalty_bucket=message.reclamation_penalty_bucket,
        alternatives=message.alternatives,
        tolerations=message.tolerations,
        anti_affinity_keys=message.anti_affinity_keys,
        never_preempts=message.never_preempts,
    )
    wire_bytes = fields.SerializeToString(deterministic=True)
    if len(wire_bytes) > _MAX_CACHED_PROFILE_BYTES:
        return _profile_of(message, where)
    try:
        return _profile_in(wire_bytes)
    except InvalidInput:
        return _profile_of(message, where)  # raises again, with `where` in the text


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
        alternatives=terms_from_wire(message.alternatives, f"{where}: alternatives"),
        tolerations=tolerations_from_wire(message.tolerations, f"{where}: tolerations"),
        anti_affinity=_keys(message.anti_affinity_keys, f"{where}: anti_affinity_keys"),
        never_preempts=message.never_preempts,
    )


def _keys(keys: Iterable[str], where: str) -> Sequence[str]:
    if not all(found := list(keys)):
        raise InvalidInput(where, found, "has an empty key")
    return found


def terms_from_wire(messages: Iterable[capacity.NodeSelectorTerm], where: str) -> Sequence[Term]:
    """Validated terms; none is empty or contains SAME."""
    terms = [tuple(requirement_from_wire(r, where) for r in term.requirements) for term in messages]
    for term in terms:
        if not term or any(r.operator is Operator.SAME for r in term):
            raise InvalidInput(where, [str(r) for r in term], "is empty or contains SAME")
    return terms


def tolerations_from_wire(
    messages: Iterable[capacity.Toleration], where: str
) -> Sequence[Toleration]:
    """Validated tolerations; an empty key requires EXISTS, as in Kubernetes."""
    found = []
    for each in messages:
        exists = each.operator == capacity.Toleration.EXISTS
        if (exists and each.value) or (not each.key and not exists):
            shown = f"{each.key}/{each.value}"
            raise InvalidInput(where, shown, "needs a key unless it is EXISTS, which has no value")
        found.append(Toleration(each.key, exists, each.value, each.effect))
    return found


def requirement_from_wire(message: capacity.NodeSelectorRequirement, where: str) -> Requirement:
    """A validated Requirement: IN and NOT_IN have values, the others none."""
    if not message.key:
        raise InvalidInput(f"{where}: requirement key", "", "is empty")
    operator = enum_member(Operator, message.operator, f"{where}: operator of {message.key}")
    values = tuple(sorted(set(message.values)))
    what = f"{where}: {message.key} {operator.name}"
    if operator in (Operator.GREATER_THAN, Operator.LESS_THAN):
        if len(values) != 1 or not is_integer(values[0]):
            raise InvalidInput(what, values, "needs one value, an integer")
    elif (operator in (Operator.IN, Operator.NOT_IN)) != bool(values):
        hint = "needs values" if not values else "takes no values"
        raise InvalidInput(what, values, hint)
    return Requirement(message.key, operator, values)


def _spread_from_wire(message: capacity.TopologySpread, where: str) -> Spread:
    if not message.topology_key or message.max_skew < 1:
        shown = f"{message.topology_key}/{message.max_skew}"
        raise InvalidInput(f"{where}: spread", shown, "needs a topology_key and max_skew >= 1")
    if message.when_unsatisfiable not in (_HARD, _SOFT):
        value = int(message.when_unsatisfiable)
        raise InvalidInput(f"{where}: when_unsatisfiable", value, "is not a known value")
    if message.min_domains < 0:
        raise InvalidInput(f"{where}: min_domains", message.min_domains, "is not a number >= 0")
    return Spread(
        message.topology_key,
        message.max_skew,
        message.when_unsatisfiable == _HARD,
        max(1, message.min_domains),
        message.ignores_node_affinity,
        message.honors_node_taints,
    )


def _bucket(value: int, what: str) -> int:
    if not penalty.ZERO <= value <= penalty.PINNED:
        raise InvalidInput(what, int(value), f"is not one of {penalty.ZERO} to {penalty.PINNED}")
    return int(value)


def _amounts(quantities: Mapping[str, str], where: str) -> dict[str, int]:
    try:
        return resources.parse_requests(quantities, resources.MAX_AGGREGATE_UNITS)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error.what}", error.value, error.hint) from None


def need_to_wire(need: Need) -> capacity.CapacityNeed:
    """The message for `need`; `need_from_wire` is the inverse."""
    fields = need.profile
    return capacity.CapacityNeed(
        requirements=requirements_to_wire(fields.requirements),
        aggregate_resources=resources.texts(
            {name: min(n, resources.MAX_AGGREGATE_UNITS) for name, n in need.aggregate.items()}
        ),
        priority=fields.priority,
        spread=[
            capacity.TopologySpread(
                topology_key=s.topology_key,
                max_skew=s.max_skew,
                when_unsatisfiable=_HARD if s.hard else _SOFT,
                min_domains=s.min_domains if s.min_domains > 1 else 0,
                ignores_node_affinity=s.ignores_node_affinity,
                honors_node_taints=s.honors_node_taints,
            )
            for s in fields.spread
        ],
        interruption_penalty_bucket=capacity.PenaltyBucket.ValueType(fields.interruption_bucket),
        reclamation_penalty_bucket=capacity.PenaltyBucket.ValueType(fields.reclamation_bucket),
        min_unit=resources.texts(need.largest),
        group=group_text(need.group),
        sizes=sizes_to_wire(need.sizes),
        alternatives=terms_to_wire(fields.alternatives),
        tolerations=[toleration_to_wire(t) for t in fields.tolerations],
        anti_affinity_keys=fields.anti_affinity,
        never_preempts=fields.never_preempts,
    )


def terms_to_wire(terms: Iterable[Term]) -> Sequence[capacity.NodeSelectorTerm]:
    """One message each."""
    return [capacity.NodeSelectorTerm(requirements=requirements_to_wire(t)) for t in terms]


def toleration_to_wire(toleration: Toleration) -> capacity.Toleration:
    """The message for one toleration; `tolerations_from_wire` is the inverse."""
    exists, equal = capacity.Toleration.EXISTS, capacity.Toleration.EQUAL
    return capacity.Toleration(
        key=toleration.key,
        operator=exists if toleration.exists else equal,
        value=toleration.value,
        effect=toleration.effect,
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
