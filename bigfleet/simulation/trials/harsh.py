"""A world on unreliable hosts: full disks, crashes at any write, power cuts, clock jumps."""

from __future__ import annotations

import random
from dataclasses import replace

from bigfleet.simulation.trials.healing import Trial, trial
from bigfleet.simulation.trials.workloads import Event

_JUMP_SECONDS = 3600.0


def harsh_trial(seed: int) -> Trial:
    """The healing trial of a seed, with unreliable hosts of shard and provider."""
    base, rng = trial(seed), random.Random(f"harsh {seed}")
    faults = replace(
        base.faults,
        disk_full=rng.choice((0.0, 0.1, 0.4)),
        crash_at_write=rng.choice((0.0, 0.02, 0.1)),
    )

    def moment() -> float:
        return rng.uniform(0.0, base.fault_seconds)

    cuts = [
        Event(moment(), "power cut", seconds=rng.uniform(0.0, 20.0))
        for _ in range(rng.randint(0, 2))
    ]
    jumps = [
        Event(moment(), "clock jumps", subject, seconds=rng.choice((-1, 1)) * _JUMP_SECONDS)
        for subject in rng.sample(("shard", "provider"), rng.randint(0, 2))
    ]
    events = sorted([*base.events, *cuts, *jumps], key=lambda event: event.at_seconds)
    return replace(base, faults=faults, events=events, fault_free=False, grows=False)
