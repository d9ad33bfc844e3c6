"""A world with a permanent fault, and with later demand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from bigfleet.simulation.cluster.workload import Workload
from bigfleet.simulation.runtime.permanent_faults import draw_permanent_faults
from bigfleet.simulation.trials.healing import Trial, trial
from bigfleet.simulation.trials.workloads import Event, growing_tenants

# Longer than every backoff but the longest.
WATCHED_SECONDS = 1800.0
_LATE_WITHIN_SECONDS = 900.0
# Few actions per minute are expected, so frequent cycles add nothing.
_CYCLE_SECONDS = 10.0


def lasting_trial(seed: int) -> Trial:
    """The healing trial of a seed with a permanent fault."""
    base, rng = trial(seed), random.Random(f"lasting {seed}")
    clusters = base.spec.clusters
    broken = draw_permanent_faults(rng, base.spec.machines, clusters)
    spec = replace(base.spec, cycle_seconds=_CYCLE_SECONDS, broken=broken)
    events = [
        event
        for event in base.events
        if event.workload is not None
        or event.subject != broken.absent_operator
        or not event.subject
    ]
    types = sorted({machine.instance_type for machine in spec.machines})
    late = _late(rng, types, [name for name in clusters if name not in broken.clusters])
    watched_seconds = WATCHED_SECONDS
    return replace(base, spec=spec, events=events, late=late, watched_seconds=watched_seconds)


def _late(rng: random.Random, types: Sequence[str], clusters: Sequence[str]) -> list[Event]:
    """New workloads of working clusters, after the fault is known."""
    wanted = growing_tenants(rng, types, clusters, _LATE_WITHIN_SECONDS)
    late = [replace(e, workload=_renamed(e.workload)) for e in wanted if e.workload is not None]
    return sorted(late, key=lambda event: event.at_seconds)


def _renamed(workload: Workload) -> Workload:
    """Under another name than the earlier workloads."""
    app = f"late-{workload.app}" if workload.app else ""
    return replace(workload, name=f"late-{workload.name}", app=app)
