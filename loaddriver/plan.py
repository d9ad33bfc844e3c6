"""The plan of a run: every request of the load, and when it is due.

Pure: the same profile and seed give the same plan, byte for byte, on any
machine. Each concern draws from a random stream of its own (workloads by
cluster, churn by cluster), so that changing the churn leaves the ramp as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from loaddriver.apportion import cumulative
from loaddriver.manifests import manifest_path, namespace_body, priority_class_body, workload_body
from loaddriver.plan_churn import churn_draws
from loaddriver.plan_workloads import Workload, draw_workloads
from loaddriver.profile import Profile, Settings

SETUP_STEP = 0
Phase = Literal["setup", "ramp", "soak"]


class PlanHeader(msgspec.Struct, frozen=True, kw_only=True, tag="plan", rename="camel"):
    """Which run this is the plan of."""

    schema: int = 1
    profile: str
    seed: int
    clusters: int
    pods: int


class Step(msgspec.Struct, frozen=True, kw_only=True, tag="step", rename="camel"):
    """A group of requests that is released together.

    Step 0 sets up, 1 to N are the ramp, N + 1 is the soak. `pods` are the pods
    that its objects ask for, `seconds` how long its requests are spread over.
    """

    number: int
    phase: Phase
    seconds: float
    pods: int
    events: int


class CreateEvent(msgspec.Struct, frozen=True, kw_only=True, tag="create", rename="camel"):
    """POST `body` to `path` of cluster number `cluster`, `offset_seconds` after the release."""

    id: str
    cluster: int
    step: int
    offset_seconds: float
    path: str
    name: str
    body: msgspec.Raw


class ChurnEvent(msgspec.Struct, frozen=True, kw_only=True, tag="churn", rename="camel"):
    """Delete the pod of rank `rank` (oldest first, then by name) among a workload's live pods."""

    id: str
    cluster: int
    step: int
    offset_seconds: float
    namespace: str
    workload: str
    rank: int


Event = CreateEvent | ChurnEvent


@dataclass(frozen=True)
class Plan:
    """Steps in order, workloads by cluster and step, events by step and offset."""

    header: PlanHeader
    steps: tuple[Step, ...]
    workloads: tuple[Workload, ...]
    events: tuple[Event, ...]

    @property
    def soak_step(self) -> int:
        """The number of the last step."""
        return self.steps[-1].number


def make_plan(profile: Profile) -> Plan:
    """The plan of a profile. Raises ProfileError when its pods cannot be split into gangs."""
    settings = profile.settings
    workloads = tuple(
        workload
        for cluster in range(settings.clusters)
        for workload in draw_workloads(profile, cluster)
    )
    events: list[Event] = [
        *_setup_events(profile, workloads),
        *_ramp_events(profile, workloads),
        *_churn_events(settings, workloads),
    ]
    events.sort(key=lambda event: (event.step, event.offset_seconds))
    header = PlanHeader(
        profile=profile.name, seed=settings.seed, clusters=settings.clusters, pods=settings.pods
    )
    return Plan(header, _steps(settings, workloads, events), workloads, tuple(events))


def _steps(
    settings: Settings, workloads: Sequence[Workload], events: Sequence[Event]
) -> tuple[Step, ...]:
    ramp = range(1, settings.ramp.steps + 1)
    phases: list[tuple[int, Phase, float]] = [
        (SETUP_STEP, "setup", 0.0),
        *((number, "ramp", settings.ramp.step_seconds) for number in ramp),
        (settings.ramp.steps + 1, "soak", settings.soak.seconds),
    ]
    return tuple(
        Step(
            number=number,
            phase=phase,
            seconds=seconds,
            pods=sum(workload.replicas for workload in workloads if workload.step == number),
            events=sum(1 for event in events if event.step == number),
        )
        for number, phase, seconds in phases
    )


def _setup_events(profile: Profile, workloads: Sequence[Workload]) -> Iterator[CreateEvent]:
    for cluster in range(profile.settings.clusters):
        own = [workload for workload in workloads if workload.cluster == cluster]
        bodies = [
            *(priority_class_body(value) for value in sorted({each.priority for each in own})),
            *(namespace_body(name) for name in sorted({each.namespace for each in own})),
        ]
        for position, body in enumerate(bodies):
            yield CreateEvent(
                id=f"{cluster}-setup-{position}",
                cluster=cluster,
                step=SETUP_STEP,
                offset_seconds=0.0,
                path=manifest_path(body),
                name=body["metadata"]["name"],
                body=msgspec.Raw(msgspec.json.encode(body)),
            )


def _ramp_events(profile: Profile, workloads: Sequence[Workload]) -> Iterator[CreateEvent]:
    """A step's objects, so spaced that pods and not objects come at an even rate."""
    seconds = profile.settings.ramp.step_seconds
    groups: dict[tuple[int, int], list[Workload]] = {}
    for workload in workloads:
        groups.setdefault((workload.cluster, workload.step), []).append(workload)
    for (cluster, step), group in groups.items():
        pods = [workload.replicas for workload in group]
        for workload, before in zip(group, cumulative(pods), strict=True):
            body = workload_body(workload, profile.catalog)
            yield CreateEvent(
                id=f"{cluster}-{workload.name}",
                cluster=cluster,
                step=step,
                offset_seconds=round(seconds * before / sum(pods), 6),
                path=manifest_path(body),
                name=workload.name,
                body=msgspec.Raw(msgspec.json.encode(body)),
            )


def _churn_events(settings: Settings, workloads: Sequence[Workload]) -> Iterator[ChurnEvent]:
    for cluster in range(settings.clusters):
        own = [workload for workload in workloads if workload.cluster == cluster]
        for position, draw in enumerate(churn_draws(settings, cluster, own)):
            yield ChurnEvent(
                id=f"{cluster}-churn-{position}",
                cluster=cluster,
                step=settings.ramp.steps + 1,
                offset_seconds=draw.offset_seconds,
                namespace=draw.workload.namespace,
                workload=draw.workload.name,
                rank=draw.rank,
            )
