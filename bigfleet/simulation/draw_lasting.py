"""A world in which something stays broken for ever, and demand that comes later."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from bigfleet.simulation.broken import something
from bigfleet.simulation.draw import Trial, trial
from bigfleet.simulation.draw_workloads import Event, growing_tenants
from bigfleet.simulation.workload import Workload

# Long enough for every rest but the longest to end.
WATCHED_SECONDS = 1800.0
_LATE_WITHIN_SECONDS = 900.0
# A few orders a minute are watched; nothing is gained by deciding more often.
_CYCLE_SECONDS = 10.0


def lasting_trial(seed: int) -> Trial:
    """The healing world of a seed, in which now something does not heal."""
    base, draw = trial(seed), random.Random(f"lasting {seed}")
    clusters = base.plan.clusters
    broken = something(draw, base.plan.machines, clusters)
    plan = replace(base.plan, cycle_seconds=_CYCLE_SECONDS, broken=broken)
    events = [
        event
        for event in base.events
        if event.workload is not None
        or event.subject != broken.absent_operator
        or not event.subject
    ]
    types = sorted({machine.instance_type for machine in plan.machines})
    late = _late(draw, types, [name for name in clusters if name not in broken.clusters])
    watched_seconds = WATCHED_SECONDS
    return replace(base, plan=plan, events=events, late=late, watched_seconds=watched_seconds)


def _late(draw: random.Random, types: Sequence[str], clusters: Sequence[str]) -> list[Event]:
    """What tenants of sound clusters want once everybody knows what is broken."""
    wanted = growing_tenants(draw, types, clusters, _LATE_WITHIN_SECONDS)
    late = [replace(e, workload=_renamed(e.workload)) for e in wanted if e.workload is not None]
    return sorted(late, key=lambda event: event.at_seconds)


def _renamed(workload: Workload) -> Workload:
    """Apart from those that were there before."""
    app = f"late-{workload.app}" if workload.app else ""
    return replace(workload, name=f"late-{workload.name}", app=app)
