"""A world whose administrators delete and cordon Nodes, remove clusters, and change limits."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from bigfleet.model.ceiling import HIGHEST_PRIORITY, Ceiling
from bigfleet.simulation.spec import WorldSpec
from bigfleet.simulation.trials.healing import Trial, trial
from bigfleet.simulation.trials.shards import shards_trial
from bigfleet.simulation.trials.workloads import Event


def administered_trial(seed: int) -> Trial:
    """The healing trial of a seed, for odd ones that of several shards, with administrators."""
    base = shards_trial(seed) if seed % 2 else trial(seed)
    rng = random.Random(f"administered {seed}")
    spec, seconds = base.spec, base.fault_seconds
    changes = [*_of_nodes(rng, spec, seconds), *_of_ceilings(rng, spec, seconds)]
    if spec.coordinators:
        changes += _of_quotas(rng, spec, seconds)
    removed = ""
    if len(spec.clusters) > 1 and rng.random() < 0.5:
        removed = rng.choice(spec.clusters)
        gone = Event(rng.uniform(10, seconds), "cluster removed", removed)
        base = replace(base, events=_until_removed(base, gone))
        changes = [each for each in changes if each.subject != removed or each.what == "quota"]
        changes.append(gone)
    events = sorted([*base.events, *changes], key=lambda event: event.at_seconds)
    return replace(base, events=events, fault_free=False, grows=False)


def _until_removed(base: Trial, gone: Event) -> list[Event]:
    """The events without those of the removed cluster after its removal."""
    return [
        each
        for each in base.events
        if each.subject != gone.subject or each.at_seconds + each.seconds < gone.at_seconds
    ]


def _of_nodes(rng: random.Random, spec: WorldSpec, seconds: float) -> Iterator[Event]:
    for cluster in spec.clusters:
        for _ in range(rng.randint(0, 2)):
            number = rng.randrange(1000)
            yield Event(rng.uniform(5, seconds), "node deleted", cluster, pods=number)
        for _ in range(rng.randint(0, 2)):
            lasts, number = rng.choice((0.0, rng.uniform(1.0, 120.0))), rng.randrange(1000)
            moment = rng.uniform(5, seconds)
            yield Event(moment, "node cordoned", cluster, None, lasts, number)


def _of_ceilings(rng: random.Random, spec: WorldSpec, seconds: float) -> Iterator[Event]:
    """Ceilings that come and change; half of them are lifted in the end."""
    for cluster in spec.clusters:
        if rng.random() < 0.5:
            continue
        for _ in range(rng.randint(1, 3)):
            ceiling = Ceiling(
                priority=rng.choice((0, 100, HIGHEST_PRIORITY, HIGHEST_PRIORITY)),
                machines=rng.choice((float("inf"), rng.randint(0, 12))),
                dollars_per_hour=rng.choice((float("inf"), rng.uniform(0.0, 5.0))),
            )
            yield Event(rng.uniform(0, seconds), "ceiling", cluster, ceiling=ceiling)
        if rng.random() < 0.5:
            yield Event(seconds, "ceiling", cluster, ceiling=Ceiling())


def _of_quotas(rng: random.Random, spec: WorldSpec, seconds: float) -> Iterator[Event]:
    for zone in sorted({machine.zone for machine in spec.machines}):
        for _ in range(rng.choice((0, 1, 2))):
            yield Event(rng.uniform(5, seconds), "quota", zone, pods=rng.randint(0, 15))
