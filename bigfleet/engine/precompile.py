"""Compiles all kernels ahead of the first decision; `python -m` does nothing else.

This takes about ten seconds the first time, and well under one if the kernels are in the cache.
"""

from __future__ import annotations

import numpy as np

from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decide import decide
from bigfleet.engine.fit.folding import fold
from bigfleet.engine.snapshot import NONE, Demand, EngineConfig, Flavour, Fleet
from bigfleet.model import penalty
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.need import Need, Operator, Profile, Requirement, Spread, profile, sizes_of

_RACK = "rack"
_POD = {"cpu": 3000, "pods": 1000}


def precompile() -> None:
    """Decide on a small fleet that exercises every kernel."""
    profiles = [_profile(), _profile(same_key=_RACK), _profile(anti_affinity=HOSTNAME_LABEL)]
    needs = [Need(each, sizes_of([(_POD, 4)])) for each in profiles]
    # More than there are machines for, so that it is short and looks for one to preempt.
    needs.append(Need(_profile(spread_key=_RACK), sizes_of([(_POD, 100)])))
    # By then the cluster has got machines, and is placed alone.
    needs.append(Need(_profile(priority=-1), sizes_of([(_POD, 1)])))
    demand = Demand(needs, np.zeros(len(needs), np.int32), frozenset({0}))
    decide(_fleet(), fold(_fleet(), demand).demand, CycleMemory(), EngineConfig(), 0.0)


def _profile(
    *, same_key: str = "", anti_affinity: str = "", spread_key: str = "", priority: int = 0
) -> Profile:
    requirements = [Requirement(same_key, Operator.SAME)] if same_key else []
    keys = [anti_affinity] if anti_affinity else []
    terms = [Spread(spread_key, 1, hard=True)] if spread_key else []
    return profile(requirements, terms, priority, penalty.ZERO, penalty.ZERO, anti_affinity=keys)


def _fleet() -> Fleet:
    """Two machines that could be released, one that drains and idle ones, of two sizes."""
    flavours = [
        Flavour({_RACK: "a"}, CapacityType.ON_DEMAND, 1.0 + number, 0.0, amounts)
        for number, amounts in enumerate(({"cpu": 4000, "pods": 110_000},
                                          {"cpu": 8000, "pods": 110_000}))
    ]  # fmt: skip
    number = 24
    bound, drains = np.arange(number) < 3, np.arange(number) == 2
    state = np.where(bound, int(MachineState.CONFIGURED), int(MachineState.IDLE))
    state[drains] = int(MachineState.DRAINING)
    return Fleet(
        flavours=flavours,
        clusters=["c"],
        flavour=np.arange(number, dtype=np.int32) % len(flavours),
        state=state.astype(np.uint8),
        cluster=np.where(bound, 0, NONE).astype(np.int32),
        destination=np.full(number, NONE, np.int32),
        last_claimed_by=np.full(number, NONE, np.int32),
        priority=np.zeros(number, np.int32),
        interruption_bucket=np.zeros(number, np.uint8),
        reclamation_bucket=np.zeros(number, np.uint8),
        unused_since_seconds=np.zeros(number),
        headroom=np.zeros(number, np.bool_),
        disruption_cost=np.zeros(number),
        tie_break=np.arange(number, dtype=np.int64),
    )


if __name__ == "__main__":
    precompile()
