"""The lines of a plan: what is asked of the clusters, and every request with its due time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

SETUP_STEP = 0
Phase = Literal["setup", "ramp", "soak"]
RAMP = "ramp"


class PlanHeader(msgspec.Struct, frozen=True, kw_only=True, tag="plan", rename="camel"):
    """Which run this is the plan of; `pods` are what the ramp builds up to."""

    schema: int = 2
    profile: str
    seed: int
    clusters: int
    pods: int


class Step(msgspec.Struct, frozen=True, kw_only=True, tag="step", rename="camel"):
    """A group of requests that is released together.

    Step 0 sets up, 1 to N are the ramp, N + 1 is the soak. `pods` are the pods by which it brings
    the ramp forward, `seconds` how long its requests are spread over.
    """

    number: int
    phase: Phase
    seconds: float
    pods: int
    events: int

    @property
    def pods_per_second(self) -> float:
        """The rate at which the step offers pods."""
        return self.pods / self.seconds


class Workload(msgspec.Struct, frozen=True, kw_only=True, tag="workload", rename="camel"):
    """One object and the pods it asks for when it is created.

    `size` is the position among the archetype's pod sizes; `group` is set for a gang, whose pods
    must share the domain that `topology` names. `origin` is what it was planned for: the ramp, or
    the shape `burst-N` or `demand-N` of the profile, counted from 0.
    """

    cluster: int
    step: int
    namespace: str
    name: str
    archetype: str
    kind: Literal["Deployment", "StatefulSet", "Job"]
    size: int
    replicas: int
    priority: int
    spread: bool
    group: str | None
    topology: Literal["sameRack", "sameZone"] | None
    origin: str = RAMP

    @property
    def atomic(self) -> bool:
        """Whether it comes and goes as one object: half a gang is none, Jobs are not scaled."""
        return self.group is not None or self.kind == "Job" or self.origin.startswith("burst")

    @property
    def step_label(self) -> str:
        """What its pods carry: the ramp looks only at those that it asked for itself."""
        return str(self.step) if self.origin == RAMP else self.origin


class Level(msgspec.Struct, frozen=True, kw_only=True, tag="level", rename="camel"):
    """From `offset_seconds` after its step's release a workload asks for `replicas` pods.

    A whole workload that asks for none is gone.
    """

    cluster: int
    workload: str
    step: int
    offset_seconds: float
    replicas: int
    origin: str = RAMP


class CreateEvent(msgspec.Struct, frozen=True, kw_only=True, tag="create", rename="camel"):
    """POST `body` to `path` of cluster number `cluster`, `offset_seconds` after the release."""

    id: str
    cluster: int
    step: int
    offset_seconds: float
    path: str
    name: str
    body: msgspec.Raw


class ScaleEvent(msgspec.Struct, frozen=True, kw_only=True, tag="scale", rename="camel"):
    """Set the replicas of the object at `path` through its scale subresource."""

    id: str
    cluster: int
    step: int
    offset_seconds: float
    path: str
    name: str
    replicas: int


class DeleteEvent(msgspec.Struct, frozen=True, kw_only=True, tag="delete", rename="camel"):
    """Delete the object at `path`; what it owns follows in the background."""

    id: str
    cluster: int
    step: int
    offset_seconds: float
    path: str
    name: str


class ChurnEvent(msgspec.Struct, frozen=True, kw_only=True, tag="churn", rename="camel"):
    """Delete the pod of rank `rank` (oldest first, then by name) among a workload's live pods."""

    id: str
    cluster: int
    step: int
    offset_seconds: float
    namespace: str
    workload: str
    rank: int


LoadEvent = CreateEvent | ScaleEvent | DeleteEvent | ChurnEvent


@dataclass(frozen=True)
class Plan:
    """Steps in order, workloads by cluster and step, levels and events by step and offset."""

    header: PlanHeader
    steps: tuple[Step, ...]
    workloads: tuple[Workload, ...]
    levels: tuple[Level, ...]
    events: tuple[LoadEvent, ...]
