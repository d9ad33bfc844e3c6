"""Compiles all kernels before anybody waits for a decision; `python -m` does nothing else.

It takes some ten seconds the first time, and well under one where an earlier process has kept what
it compiled.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decide import decide
from bigfleet.engine.snapshot import NONE, Demand, EngineConfig, Flavour, Fleet
from bigfleet.model import penalty
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.need import (
    HOSTNAME_LABEL,
    Need,
    Operator,
    Profile,
    Requirement,
    profile,
    sizes_of,
)

_RACK = "rack"
_POD = {"cpu": 3000, "pods": 1000}


def precompile() -> None:
    """Decide about a made-up world in which every kernel has something to do."""
    kinds = [_kind(), _kind(requirements=[Requirement(_RACK, Operator.SAME)]), _kind(apart=True)]
    needs = [Need(kind, sizes_of([(_POD, 4)]), "") for kind in kinds]
    demand = Demand(needs, np.zeros(len(needs), np.int32), frozenset({0}))
    decide(_fleet(), demand, CycleMemory(), EngineConfig(), 0.0)


def _kind(*, requirements: list[Requirement] | None = None, apart: bool = False) -> Profile:
    keys = [HOSTNAME_LABEL] if apart else []
    return profile(requirements or [], (), 0, penalty.ZERO, penalty.ZERO, anti_affinity=keys)


def _fleet() -> Fleet:
    """Two machines at work, and more that are idle, of two sizes."""
    flavours = [
        Flavour({_RACK: "a"}, CapacityType.ON_DEMAND, 1.0 + number, 0.0, amounts)
        for number, amounts in enumerate(({"cpu": 4000, "pods": 110_000},
                                          {"cpu": 8000, "pods": 110_000}))
    ]  # fmt: skip
    number = 24
    at_work = np.arange(number) < 2
    return Fleet(
        flavours=flavours,
        clusters=["c"],
        flavour=np.arange(number, dtype=np.int32) % len(flavours),
        state=np.where(at_work, int(MachineState.CONFIGURED), int(MachineState.IDLE)).astype(
            np.uint8
        ),
        cluster=np.where(at_work, 0, NONE).astype(np.int32),
        destination=np.full(number, NONE, np.int32),
        last_claimed_by=np.full(number, NONE, np.int32),
        priority=np.zeros(number, np.int32),
        interruption_bucket=np.zeros(number, np.uint8),
        reclamation_bucket=np.zeros(number, np.uint8),
        unused_since_seconds=np.zeros(number),
        headroom=np.zeros(number, np.bool_),
        disruption_cost=np.full(number, np.nan),
        tie_break=np.arange(number, dtype=np.int64),
    )


if __name__ == "__main__":
    precompile()
