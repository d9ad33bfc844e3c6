"""Random small fleets and demands, crowded enough that everything happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from engine_rig import RACK, ZONE, Spec, demand_of, fleet_of, need_of, same

from bigfleet.engine.carry import Carry, Reservation, Shortage
from bigfleet.engine.snapshot import NONE, Demand, Fleet
from bigfleet.engine.state import key_of
from bigfleet.model import penalty
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.need import ADDITIONAL_GROUP, Need, NeedKey, Operator, Requirement, Spread

T = TypeVar("T")
CLUSTERS = ("east", "west", "north")
PRIORITIES = (0, 0, 0, 50, 200_000, 1_000_000)
_REQUIREMENTS = (
    Requirement(ZONE, Operator.IN, ("a", "b")),
    Requirement(ZONE, Operator.NOT_IN, ("a",)),
    Requirement(RACK, Operator.EXISTS),
    Requirement("old", Operator.DOES_NOT_EXIST),
    same(RACK),
    same(ZONE),
)
_SPREAD = (Spread(ZONE, 1, True), Spread(ZONE, 2, True), Spread(RACK, 1, True),
           Spread(ZONE, 1, False))  # fmt: skip


def random_case(seed: int, machines: int = 40, needs: int = 8) -> tuple[Fleet, Demand]:
    """A fleet and a demand that are the same for the same numbers."""
    draw = np.random.default_rng(seed)
    kinds = [_random_kind(draw) for _ in range(int(draw.integers(1, 12)))]
    states = _pick(draw, (_PLENTY, _BUSY))
    specs = [_random_machine(draw, at, kinds, states, needs) for at in range(machines)]
    fleet = fleet_of(specs)
    wishes = [(_pick(draw, CLUSTERS), _random_need(draw, at)) for at in range(needs)]
    wishes = [(c if c in fleet.clusters else "east", need) for c, need in wishes]
    wishes.sort(key=lambda wish: -wish[1].profile.priority)
    reported = [c for c in fleet.clusters if draw.random() < 0.8]
    deaf = [c for c in fleet.clusters if draw.random() < 0.1]
    return fleet, demand_of(fleet, wishes, reported, deaf)


def random_carry(seed: int, fleet: Fleet, demand: Demand) -> Carry:
    """Reservations and shortages of some needs, and of one that is gone."""
    draw = np.random.default_rng(seed + 1)
    keys = [key_of(fleet, demand, index) for index in range(len(demand.needs))]
    keys.append(NeedKey("east", "gone", ""))
    reserved, short = ([key for key in keys if draw.random() < 0.4] for _ in range(2))
    domains = ("", "a", "b", "r1", "r2", "elsewhere")
    return Carry(
        tuple(Reservation(key, _pick(draw, domains), _pick(draw, (9_000.0, 9_900.0)))
              for key in reserved),
        tuple(Shortage(key, int(draw.integers(1, 9)), 9_000.0) for key in short),
    )  # fmt: skip


def _pick(draw: np.random.Generator, choices: Sequence[T]) -> T:
    return choices[int(draw.integers(len(choices)))]


def _random_kind(draw: np.random.Generator) -> Spec:
    cpu = _pick(draw, (2, 4, 8, 16))
    labels = {ZONE: _pick(draw, "abc"), RACK: _pick(draw, ("r1", "r2", "r3"))}
    for key in (*labels,):
        if draw.random() < 0.15:
            del labels[key]
    if draw.random() < 0.2:
        labels["old"] = "yes"
    more = {"memory": _pick(draw, (0, cpu * 2, cpu * 4))}
    if draw.random() < 0.2:
        more["nvidia.com/gpu"] = _pick(draw, (1000, 8000))
    capacity_type = _pick(draw, [*CapacityType])
    probability = _pick(draw, (0.05, 0.3)) if capacity_type is CapacityType.SPOT else 0.0
    price = 0.0 if draw.random() < 0.3 else _pick(draw, (0.05, 0.06, 0.1)) * cpu
    return Spec("", cpu=cpu, price=price, probability=probability, labels=labels, more=more,
                capacity_type=capacity_type)  # fmt: skip


# How often a machine is in each state, from SPECULATIVE to FAILED.
_PLENTY = (0.25, 0.05, 0.25, 0.08, 0.25, 0.05, 0.03, 0.04)
_BUSY = (0.04, 0.03, 0.08, 0.05, 0.72, 0.04, 0.02, 0.02)


def _random_machine(
    draw: np.random.Generator, at: int, kinds: Sequence[Spec], states: Sequence[float], needs: int
) -> Spec:
    state = MachineState(1 + int(draw.choice(len(states), p=states)))
    bound = state in (MachineState.CONFIGURING, MachineState.CONFIGURED, MachineState.DRAINING)
    coming = bound or state is MachineState.CREATING
    return replace(
        _pick(draw, kinds),
        name=f"m{int(draw.integers(1000)):03}-{at}",
        state=state,
        cluster=_pick(draw, CLUSTERS) if bound else "",
        wanted_by=int(draw.integers(needs)) if draw.random() < (0.6 if coming else 0.1) else NONE,
        last_penalty=_pick(draw, (1, 1, 5, 27)),
        last_priority=_pick(draw, PRIORITIES),
        idle_since=_pick(draw, (float("nan"), 0.0, 9_950.0, 9_000.0)),
    )


def _random_need(draw: np.random.Generator, at: int) -> Need:
    requirements = {_pick(draw, _REQUIREMENTS) for _ in range(int(draw.integers(0, 3)))}
    stranded = draw.random() < 0.15 and not requirements & {same(RACK), same(ZONE)}
    more = {}
    if draw.random() < 0.5:
        more["memory"] = int(draw.integers(1, 60))
    if draw.random() < 0.15:
        more["nvidia.com/gpu"] = int(draw.integers(1, 9)) * 1000
    return need_of(
        int(draw.integers(1, 50)),
        *sorted(requirements),
        unit=_pick(draw, (0, 1, 3, 4)),
        more=more,
        spread=tuple({_pick(draw, _SPREAD) for _ in range(int(draw.integers(0, 2)))}),
        interruption=_pick(draw, (penalty.ZERO, penalty.bucket(3), penalty.PINNED)),
        group=ADDITIONAL_GROUP if stranded else f"g{at}",
        priority=_pick(draw, PRIORITIES),
        reclamation=_pick(draw, (penalty.ZERO, penalty.bucket(8))),
    )
