"""The records of a plan: steps, workloads, and every request with its due time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

SETUP_STEP = 0
Phase = Literal["setup", "ramp", "soak"]
RAMP = "ramp"


class PlanHeader(msgspec.Struct, frozen=True, kw_only=True, tag="plan", rename="camel"):
    """The run that the plan is of; `pods` is the number at the end of the ramp."""

    schema: int = 2
    profile: str
    seed: int
    clusters: int
    pods: int


class Step(msgspec.Struct, frozen=True, kw_only=True, tag="step", rename="camel"):
    """A group of requests that is released together.

    Step 0 is the set-up, 1 to N are the ramp, N + 1 is the soak. `pods` is the number of pods it
    adds to the ramp, `seconds` the time over which its requests are spread.
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
    """One workload object with its initial replicas.

    `size` is the position among the archetype's pod sizes; `group` is set for a gang, whose pods
    must share the domain that `topology` names. `origin` is the part of the profile it is planned
    for: `ramp`, `burst-N` or `demand-N`, counted from 0.
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
        """Whether it is created and deleted as a whole, never scaled: gangs, Jobs and bursts."""
        return self.group is not None or self.kind == "Job" or self.origin.startswith("burst")

    @property
    def step_label(self) -> str:
        """The step label of its pods, by which the ramp counts only its own."""
        return str(self.step) if self.origin == RAMP else self.origin


class Level(msgspec.Struct, frozen=True, kw_only=True, tag="level", rename="camel"):
    """The replicas of a workload from `offset_seconds` after its step's release on.

    An atomic workload with 0 replicas is deleted.
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
    """Delete the object at `path`, with background propagation."""

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
