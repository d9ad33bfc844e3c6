"""Bursts: extra objects that come and go again as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from loaddriver.plan.records import Level, Workload
from loaddriver.plan.times import REQUESTS_PER_SECOND, step_and_offset
from loaddriver.plan.workloads import draw_objects, random_stream
from loaddriver.profile.settings import Burst, Profile


def burst_workloads(profile: Profile) -> Iterator[tuple[Workload, Level, Level]]:
    """Each object of all bursts with its coming and its going.

    Objects go round the clusters, beginning anywhere, so that one gang is in one cluster; unless
    the burst is one cluster's.
    """
    for number, burst in enumerate(profile.settings.bursts):
        yield from _burst(profile, number, burst)


def _burst(profile: Profile, number: int, burst: Burst) -> Iterator[tuple[Workload, Level, Level]]:
    settings = profile.settings
    random = random_stream(settings.seed, f"bursts/{number}")
    first = random.randrange(settings.clusters)
    specs = draw_objects(profile.catalog.archetype(burst.archetype), burst.pods, random)
    sent: Counter[int] = Counter()
    for position, spec in enumerate(specs):
        cluster = (first + position) % settings.clusters
        if burst.cluster is not None:
            cluster = settings.cluster_names.index(burst.cluster)
        comes = burst.at_seconds + sent[cluster] / REQUESTS_PER_SECOND
        sent[cluster] += 1
        step, offset = step_and_offset(settings, burst.phase, comes)
        name = f"{burst.archetype}-b{number}-{position + 1:05d}"
        workload = spec.to_workload(name, cluster, step, f"burst-{number}")
        goes = step_and_offset(settings, burst.phase, comes + burst.duration_seconds)
        yield (
            workload,
            _level(workload, step, offset, workload.replicas),
            _level(workload, *goes, 0),
        )


def _level(workload: Workload, step: int, offset: float, replicas: int) -> Level:
    return Level(
        cluster=workload.cluster,
        workload=workload.name,
        step=step,
        offset_seconds=offset,
        replicas=replicas,
        origin=workload.origin,
    )
