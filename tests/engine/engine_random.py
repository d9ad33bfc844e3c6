"""Random small fleets and demands, crowded enough that everything happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from engine_rig import RACK, ZONE, Spec, demand_of, fleet_of, need_of, same

from bigfleet.engine.snapshot import NONE, Demand, Fleet
from bigfleet.model import penalty
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.need import Need, Operator, Requirement, Spread

T = TypeVar("T")
CLUSTERS = ("east", "west", "north")
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
    specs = [_random_machine(draw, at, kinds, needs) for at in range(machines)]
    fleet = fleet_of(specs)
    wishes = [(_pick(draw, CLUSTERS), _random_need(draw, at)) for at in range(needs)]
    wishes = [(c if c in fleet.clusters else "east", need) for c, need in wishes]
    reported = [c for c in fleet.clusters if draw.random() < 0.8]
    return fleet, demand_of(fleet, wishes, reported)


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


def _random_machine(draw: np.random.Generator, at: int, kinds: Sequence[Spec], needs: int) -> Spec:
    state = MachineState(int(draw.choice([1, 2, 3, 4, 5, 6, 7, 8],
                                         p=[.25, .05, .25, .08, .25, .05, .03, .04])))  # fmt: skip
    bound = state in (MachineState.CONFIGURING, MachineState.CONFIGURED, MachineState.DRAINING)
    coming = bound or state is MachineState.CREATING
    return replace(
        _pick(draw, kinds),
        name=f"m{int(draw.integers(1000)):03}-{at}",
        state=state,
        cluster=_pick(draw, CLUSTERS) if bound else "",
        wanted_by=int(draw.integers(needs)) if coming and draw.random() < 0.6 else NONE,
        last_penalty=_pick(draw, (1, 1, 5, 27)),
        idle_since=_pick(draw, (float("nan"), 0.0, 9_950.0, 9_000.0)),
    )


def _random_need(draw: np.random.Generator, at: int) -> Need:
    requirements = {_pick(draw, _REQUIREMENTS) for _ in range(int(draw.integers(0, 3)))}
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
        group=f"g{at}",
    )
