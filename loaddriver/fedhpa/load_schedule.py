"""The traffic of a federation over time, and the replicas it needs. Pure.

Times are seconds since the start of the first phase.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from loaddriver.profile.archetypes import Archetype
from loaddriver.profile.federation import FederationSettings

Cores = Mapping[str, float]

# The HPA tolerance: no scaling while usage is within a tenth of the target.
_TOLERANCE = 0.1


@dataclass(frozen=True)
class PhaseWindow:
    """A phase, from `begin` to `end`."""

    name: str
    begin: float
    end: float
    federation_down: bool
    partitioned: str | None


@dataclass(frozen=True)
class LoadChange:
    """From `at` on, traffic needs `cores` in each cluster."""

    at: float
    cores: Cores


@dataclass(frozen=True)
class ReplicaBounds:
    """The replicas that an HPA keeps for a load: any number from `low` to `high`."""

    low: int
    high: int


@dataclass(frozen=True)
class LoadSchedule:
    """The phases and load changes of a federation, in order."""

    federation: FederationSettings
    clusters: tuple[str, ...]
    pod_cores: float
    pod_slots: int
    phase_windows: tuple[PhaseWindow, ...]
    changes: tuple[LoadChange, ...]

    @property
    def on_premise(self) -> str:
        """The name of the on-premise cluster."""
        return self.federation.on_premise.cluster

    def cores_at(self, moment: float) -> Cores:
        """The cores that traffic needs in each cluster at `moment`."""
        past = [change for change in self.changes if change.at <= moment]
        return past[-1].cores if past else self.changes[0].cores

    def replica_bounds(self, cores: Cores) -> dict[str, ReplicaBounds]:
        """The replicas that each cluster should reach under this load."""
        target = self.pod_cores * self.federation.target_percent / 100
        full = math.ceil(cores[self.on_premise] / target) >= self.pod_slots
        settled = self.routed_load(cores, is_full=full)
        replica_bounds = {name: _need(each / target, self._floor) for name, each in settled.items()}
        if full:
            replica_bounds[self.on_premise] = ReplicaBounds(self.pod_slots, self.pod_slots)
        return replica_bounds

    def routed_load(self, cores: Cores, *, is_full: bool) -> dict[str, float]:
        """The load of each cluster after spillover, which starts when on-premise is full."""
        if not is_full:
            return dict(cores)
        own = self.on_premise
        threshold = self.federation.on_premise.spillover_at_percent / 100
        over = max(0.0, cores[own] - self.pod_slots * self.pod_cores * threshold)
        others = len(self.clusters) - 1
        return {
            name: each - over if name == own else each + over / others
            for name, each in cores.items()
        }

    @property
    def _floor(self) -> int:
        """The minimum replicas of each cluster's HPA: its share of minReplicas."""
        return -(-self.federation.min_replicas // len(self.clusters))


def make_schedule(
    federation: FederationSettings,
    archetype: Archetype,
    clusters: tuple[str, ...],
    other_pods: int,
    seed: int,
) -> LoadSchedule:
    """Make the schedule of a profile and seed; `other_pods` also use on-premise machines."""
    pod_slots = federation.on_premise.machines * archetype.density - other_pods
    return LoadSchedule(
        federation=federation,
        clusters=clusters,
        pod_cores=archetype.sizes[0].cpu_millicores / 1000,
        pod_slots=pod_slots,
        phase_windows=tuple(_windows(federation)),
        changes=tuple(_changes(federation, seed)),
    )


def _windows(federation: FederationSettings) -> Iterator[PhaseWindow]:
    begin = 0.0
    for name, phase in federation.phases.items():
        end = begin + phase.seconds
        yield PhaseWindow(name, begin, end, phase.federation_down, phase.partitioned)
        begin = end


def _changes(federation: FederationSettings, seed: int) -> Iterator[LoadChange]:
    drawn = random.Random(f"federation/{seed}")
    cores: dict[str, float] = {}
    begin = 0.0
    for phase in federation.phases.values():
        for step in phase.load:
            cores = {**cores, **step.cores}
            late = drawn.uniform(0, federation.jitter_seconds) if step.at else 0.0
            yield LoadChange(begin + step.at * phase.seconds + late, cores)
        begin += phase.seconds


def _need(replicas: float, floor: int) -> ReplicaBounds:
    low = max(1, math.ceil(replicas / (1 + _TOLERANCE)))
    return ReplicaBounds(low, max(low, math.ceil(replicas / (1 - _TOLERANCE)), floor))
