"""Validation of a snapshot before a decision.

Records from outside are validated one by one where they come in, and only bad ones are rejected.
What is rejected here is a bug in the code that built the snapshot: a decision on it would be wrong,
and with a NaN or an integer overflow silently so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.need_columns import NeedColumns
from bigfleet.engine.snapshot import NONE, Demand, Flavour, Fleet, in_states
from bigfleet.model import penalty
from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import BOUND, MachineState
from bigfleet.model.need import MAX_PODS_OF_A_SIZE, Need, Profile, Size
from bigfleet.model.resources import MAX_MACHINE_UNITS

_MAX_SUM = 2**62
_PRIORITIES = range(-(2**31), 2**31)
_BUCKETS = range(penalty.PINNED + 1)  # 0 is unknown, allowed for machines only
# A folded gang is one size, the sum of all its pods.
MAX_UNITS_OF_A_SIZE = 2**61
_COLUMNS = (
    "state",
    "cluster",
    "destination",
    "last_claimed_by",
    "priority",
    "interruption_bucket",
    "reclamation_bucket",
    "unused_since_seconds",
    "headroom",
    "disruption_cost",
    "tie_break",
)


def validate(fleet: Fleet, demand: Demand, now_seconds: float) -> None:
    """Raise InvalidInput that names the flavour, row or need, the value, and what is valid."""
    if not math.isfinite(now_seconds):
        raise InvalidInput("now_seconds", now_seconds, "is not finite")
    _check_flavours(fleet)
    _check_rows(fleet, len(demand.needs))
    _check_sums(fleet)
    _check_demand(fleet, demand)


def _check_flavours(fleet: Fleet) -> None:
    known = fleet.flavours if isinstance(fleet.flavours, FlavourColumns) else None
    if known is None or not known.is_valid:
        for number, flavour in enumerate(fleet.flavours):
            _check_flavour(f"flavour {number}", flavour)
    if known is not None:
        known.is_valid = True


def _check_flavour(name: str, flavour: Flavour) -> None:
    price, probability = flavour.price_per_hour, flavour.interruption_probability
    if not 0 <= price < math.inf:
        raise InvalidInput(f"{name}: price_per_hour", price, "is not a finite amount >= 0")
    if not 0 <= probability <= 1:
        raise InvalidInput(f"{name}: interruption_probability", probability, "is not in 0..1")
    _check_amounts(f"{name}: allocatable", flavour.allocatable, MAX_MACHINE_UNITS)


def _check_amounts(name: str, amounts: Mapping[str, int], limit: int) -> None:
    for resource, amount in amounts.items():
        if not 0 <= amount <= limit:
            raise InvalidInput(f"{name}: {resource}", amount, f"is not in 0..{limit}")


def _check_rows(fleet: Fleet, needs: int) -> None:
    for name in _COLUMNS:
        entries = len(getattr(fleet, name))
        if entries != len(fleet):
            raise InvalidInput(f"fleet: {name}", entries, f"entries for {len(fleet)} machines")
    _check_range("flavour", fleet.flavour, 0, len(fleet.flavours))
    _check_range("state", fleet.state, min(MachineState), max(MachineState) + 1)
    _check_range("cluster", fleet.cluster, NONE, len(fleet.clusters))
    _check_range("destination", fleet.destination, NONE, len(fleet.clusters))
    _check_bound(fleet)
    _check_range("last_claimed_by", fleet.last_claimed_by, NONE, needs)
    _check_range("interruption_bucket", fleet.interruption_bucket, 0, len(_BUCKETS))
    _check_range("reclamation_bucket", fleet.reclamation_bucket, 0, len(_BUCKETS))
    negative = np.flatnonzero(fleet.disruption_cost < 0)
    if len(negative):
        value = float(fleet.disruption_cost[negative[0]])
        raise InvalidInput(f"row {negative[0]}: disruption_cost", value, "is not >= 0")
    if (fleet.tie_break[1:] > fleet.tie_break[:-1]).all():
        return
    ordered = np.sort(fleet.tie_break)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        raise InvalidInput("fleet: tie_break", int(twice[0]), "is not unique")


def _check_bound(fleet: Fleet) -> None:
    unbound = np.flatnonzero(in_states(fleet.state, BOUND) & (fleet.cluster == NONE))
    if len(unbound):
        state = MachineState(int(fleet.state[unbound[0]]))
        raise InvalidInput(f"row {unbound[0]}: state", state.name, "requires a cluster")


def _check_range(name: str, column: NDArray[np.integer], start: int, stop: int) -> None:
    if len(column) and (column.min() < start or column.max() >= stop):
        row = int(np.flatnonzero((column < start) | (column >= stop))[0])
        hint = f"is not in {start}..{stop - 1}"
        raise InvalidInput(f"row {row}: {name}", int(column[row]), hint)


def _check_sums(fleet: Fleet) -> None:
    if isinstance(fleet.flavours, FlavourColumns):
        # In floating point, so that the check itself cannot overflow.
        most = fleet.flavours.allocatable.max(initial=0) * float(len(fleet))
        if most < _MAX_SUM * 0.99:
            return
    for number, flavour in enumerate(fleet.flavours):
        largest = max(flavour.allocatable.values(), default=0)
        if largest * len(fleet) > _MAX_SUM:
            hint = f"overflows when summed over {len(fleet)} machines"
            raise InvalidInput(f"flavour {number}: allocatable", largest, hint)


def _check_demand(fleet: Fleet, demand: Demand) -> None:
    for name in ("cluster", "number"):
        column, needs = getattr(demand, name), len(demand.needs)
        if column is not None and len(column) != needs:
            raise InvalidInput(f"demand: {name}", len(column), f"entries for {needs} needs")
    _check_range("cluster of the need", demand.cluster, 0, len(fleet.clusters))
    if isinstance(demand.needs, NeedColumns) and _are_valid(demand.needs):
        return
    last = _PRIORITIES[-1]
    for number, need in enumerate(demand.needs):
        _check_need(f"need {number} ({need.profile.fingerprint})", need)
        if need.priority > last:
            hint = f"follows {last}; needs must be sorted by descending priority"
            raise InvalidInput(f"need {number}: priority", need.priority, hint)
        last = need.priority


def _are_valid(needs: NeedColumns) -> bool:
    """Whether all needs are valid; those that are not are found one by one."""
    amounts, pods = needs.amounts, needs.pods
    bounded = amounts.min(initial=0) >= 0 and amounts.max(initial=0) <= MAX_UNITS_OF_A_SIZE
    counted = pods.min(initial=1) > 0 and pods.max(initial=0) <= MAX_PODS_OF_A_SIZE
    sorted_ = bool((np.diff(needs.priority) <= 0).all())
    return (
        bool(bounded and counted)
        and sorted_
        and bool((amounts > 0).any(axis=1).all())
        and needs.have_valid_profiles(_check_profile)
    )


def _check_size(name: str, size: Size) -> None:
    _check_amounts(name, dict(size.amounts), MAX_UNITS_OF_A_SIZE)
    if not any(amount for _, amount in size.amounts):
        raise InvalidInput(name, dict(size.amounts), "requests nothing")
    if not 0 < size.pods <= MAX_PODS_OF_A_SIZE:
        raise InvalidInput(f"{name}: pods", size.pods, f"is not in 1..{MAX_PODS_OF_A_SIZE}")


def _check_need(name: str, need: Need) -> None:
    for number, size in enumerate(need.sizes):
        _check_size(f"{name}: size {number}", size)
    _check_profile(name, need.profile)


def _check_profile(name: str, profile: Profile) -> None:
    if profile.priority not in _PRIORITIES:
        raise InvalidInput(f"{name}: priority", profile.priority, "does not fit into 32 bits")
    for bucket in (profile.interruption_bucket, profile.reclamation_bucket):
        if bucket not in _BUCKETS[penalty.ZERO :]:
            hint = f"is not in {penalty.ZERO}..{penalty.PINNED}"
            raise InvalidInput(f"{name}: penalty bucket", bucket, hint)
    for term in profile.spread:
        if term.max_skew < 1:
            raise InvalidInput(f"{name}: max_skew", term.max_skew, "is not >= 1")
