"""A world with several shards, their coordinator, and domains that move between them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bigfleet.simulation.trials.healing import Trial, trial
from bigfleet.simulation.trials.workloads import Event

_REPLICAS = ("c-0", "c-1")


def shards_trial(seed: int) -> Trial:
    """The healing trial of a seed with several shards. In a fault-free one no domain moves; only
    the coordinator's leader changes, which must not affect shards.
    """
    base, rng = trial(seed), random.Random(f"shards {seed}")
    shards = [f"s-{number}" for number in range(rng.randint(2, 3))]
    seconds = base.fault_seconds
    changes = [*_of_coordinator(rng, seconds, fault_free=base.fault_free)]
    late: Sequence[str] = ()
    if not base.fault_free:
        late = shards[-1:] if rng.random() < 0.3 else ()
        changes += [Event(rng.uniform(5, seconds / 2), "shard comes", name) for name in late]
        changes += _of_shards(rng, shards, seconds)
    spec = replace(base.spec, shards=shards, late_shards=late, coordinators=_REPLICAS)
    kept = [
        replace(event, subject=rng.choice(shards)) if event.what == "shard dies" else event
        for event in base.events
    ]
    faults = base.faults
    if not base.fault_free:
        faults = replace(
            faults,
            commit_unanswered=rng.choice((0.0, 0.0, 0.05, 0.2)),
            crash_at_write=rng.choice((0.0, 0.0, 0.0, 0.02)),
        )
    events = sorted([*kept, *changes], key=lambda event: event.at_seconds)
    return replace(base, spec=spec, events=events, faults=faults)


def _of_coordinator(rng: random.Random, seconds: float, *, fault_free: bool) -> Iterator[Event]:
    """Leader changes; unless `fault_free`, also crashes and coordinator outages."""
    for _ in range(rng.randint(0, 3)):
        yield Event(rng.uniform(0, seconds), "coordinator deposed")
    if not fault_free:
        for what, most in (("coordinator dies", 2), ("coordinator away", 1)):
            for _ in range(rng.randint(0, most)):
                yield Event(rng.uniform(0, seconds), what, seconds=rng.uniform(1.0, 60.0))


def _of_shards(rng: random.Random, shards: Sequence[str], seconds: float) -> Iterator[Event]:
    """Domains that move; shards that are partitioned, lose their disks, leave or are lost."""
    for _ in range(rng.randint(0, 6)):
        moment, number = rng.uniform(5, seconds), rng.randrange(1000)
        yield Event(moment, "domain moves", rng.choice(shards), pods=number)
    for what, most in (("shard cut off", 2), ("disk lost", 1)):
        for _ in range(rng.randint(0, most)):
            lasts = rng.uniform(1.0, 60.0)
            yield Event(rng.uniform(0, seconds), what, rng.choice(shards), seconds=lasts)
    if len(shards) > 2 and rng.random() < 0.4:
        what = rng.choice(("shard leaves", "shard lost"))
        yield Event(rng.uniform(20, seconds), what, shards[0])
