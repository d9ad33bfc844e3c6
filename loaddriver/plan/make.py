"""Makes the plan of a run: every request of the load with its due time.

Pure: the same profile and seed give the same plan, byte for byte, on any machine. Workloads, churn
and demand steps of each cluster, and each burst, have their own random streams, so that a change to
one keeps the others.

First the replicas of each workload over time are planned (levels), then which pods are churned; the
load mode turns both into requests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from loaddriver.apportion import prefix_sums
from loaddriver.plan.churn import churn_deletions
from loaddriver.plan.manifests import has_priority_class, manifest_path
from loaddriver.plan.object_events import churn_events, object_events
from loaddriver.plan.records import (
    RAMP,
    SETUP_STEP,
    CreateEvent,
    Level,
    LoadEvent,
    Phase,
    Plan,
    PlanHeader,
    Step,
    Workload,
)
from loaddriver.plan.request_events import request_events
from loaddriver.plan.setup_manifests import daemon_set_body, namespace_body, priority_class_body
from loaddriver.plan.shapes import DemandSteps, burst_workloads
from loaddriver.plan.times import check_within_phases, soak_step
from loaddriver.plan.workloads import draw_workloads
from loaddriver.profile.loading import Profile
from loaddriver.profile.settings import ProfileSettings


@dataclass
class _Cluster:
    """The workloads of one cluster: standing ones (ramp and demand steps), and bursts."""

    number: int
    standing: list[Workload] = field(default_factory=list)
    standing_levels: list[Level] = field(default_factory=list)
    bursts: list[Workload] = field(default_factory=list)
    burst_levels: list[Level] = field(default_factory=list)

    @property
    def workloads(self) -> list[Workload]:
        return [*self.standing, *self.bursts]

    @property
    def levels(self) -> list[Level]:
        return sorted([*self.standing_levels, *self.burst_levels], key=_due)


def make_plan(profile: Profile) -> Plan:
    """Make the plan of a profile.

    Raises ProfileError if its pods cannot be split into gangs, or if bursts or demand steps do not
    fit into their phases.
    """
    clusters = _clusters(profile)
    workloads = tuple(workload for cluster in clusters for workload in cluster.workloads)
    events = [event for cluster in clusters for event in _events(profile, cluster)]
    events.sort(key=_due)
    check_within_phases(profile, events)
    settings = profile.settings
    header = PlanHeader(
        profile=profile.name, seed=settings.seed, clusters=settings.clusters, pods=settings.pods
    )
    levels = sorted((level for cluster in clusters for level in cluster.levels), key=_due)
    steps = _steps(settings, workloads, events)
    return Plan(header, steps, workloads, tuple(levels), tuple(events))


def _due(due: Level | LoadEvent) -> tuple[int, float]:
    return due.step, due.offset_seconds


def _clusters(profile: Profile) -> list[_Cluster]:
    clusters = [_Cluster(number) for number in range(profile.settings.clusters)]
    for cluster in clusters:
        ramp = draw_workloads(profile, cluster.number)
        returned, changes = DemandSteps(profile, cluster.number, ramp).plan()
        cluster.standing = [*ramp, *returned]
        cluster.standing_levels = [*_ramp_levels(profile.settings, ramp), *changes]
    for workload, *levels in burst_workloads(profile):
        clusters[workload.cluster].bursts.append(workload)
        clusters[workload.cluster].burst_levels.extend(levels)
    return clusters


def _ramp_levels(settings: ProfileSettings, workloads: Sequence[Workload]) -> Iterator[Level]:
    """Space the objects of each step so that pods, not objects, arrive at an even rate."""
    steps: defaultdict[int, list[Workload]] = defaultdict(list)
    for workload in workloads:
        steps[workload.step].append(workload)
    for step, group in steps.items():
        pods = [workload.replicas for workload in group]
        for workload, before in zip(group, prefix_sums(pods), strict=True):
            yield Level(
                cluster=workload.cluster,
                workload=workload.name,
                step=step,
                offset_seconds=round(settings.ramp.step_seconds * before / sum(pods), 6),
                replicas=workload.replicas,
            )


def _events(profile: Profile, cluster: _Cluster) -> Iterator[LoadEvent]:
    settings = profile.settings
    named = {workload.name: workload for workload in cluster.workloads}
    deletions = churn_deletions(profile, cluster.number, cluster.standing, cluster.standing_levels)
    yield from _setup_events(profile, cluster)
    if settings.load.mode == "cr":
        yield from request_events(settings, named, cluster.levels, deletions, profile.catalog)
    else:
        yield from object_events(named, cluster.levels, profile.catalog)
        yield from churn_events(settings, cluster.number, deletions)


def _setup_events(profile: Profile, cluster: _Cluster) -> Iterator[CreateEvent]:
    own, of_pods = cluster.workloads, profile.settings.load.mode == "pods"
    used = [profile.catalog.archetype(name) for name in {each.archetype for each in own}]
    classes = {(each.priority, each.preempts) for each in used if has_priority_class(each)}
    bodies = [
        *(priority_class_body(*each) for each in (sorted(classes) if of_pods else ())),
        *(namespace_body(name) for name in sorted({each.namespace for each in own})),
        *(daemon_set_body(agent) for agent in profile.catalog.daemon_sets),
    ]
    for position, body in enumerate(bodies):
        yield CreateEvent(
            id=f"{cluster.number}-setup-{position}",
            cluster=cluster.number,
            step=SETUP_STEP,
            offset_seconds=0.0,
            path=manifest_path(body),
            name=body["metadata"]["name"],
            body=msgspec.Raw(msgspec.json.encode(body)),
        )


def _steps(
    settings: ProfileSettings, workloads: Sequence[Workload], events: Sequence[LoadEvent]
) -> tuple[Step, ...]:
    pods: defaultdict[int, int] = defaultdict(int)
    for workload in workloads:
        pods[workload.step] += workload.replicas if workload.origin == RAMP else 0
    counts: defaultdict[int, int] = defaultdict(int)
    for event in events:
        counts[event.step] += 1
    ramp = range(1, settings.ramp.steps + 1)
    phases: list[tuple[int, Phase, float]] = [
        (SETUP_STEP, "setup", 0.0),
        *((number, "ramp", settings.ramp.step_seconds) for number in ramp),
        (soak_step(settings), "soak", settings.soak.seconds),
    ]
    return tuple(
        Step(number=number, phase=phase, seconds=seconds, pods=pods[number], events=counts[number])
        for number, phase, seconds in phases
    )
