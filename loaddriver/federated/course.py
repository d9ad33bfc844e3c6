"""What a federation's callers ask for at each moment, and how many replicas that takes. Pure.

Moments are seconds since the begin of the first phase.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from loaddriver.archetypes import Archetype
from loaddriver.profile_federation import Federation

Cores = Mapping[str, float]

# An HPA leaves replicas alone whose use is within a tenth of the target.
_TOLERANCE = 0.1


@dataclass(frozen=True)
class Span:
    """A phase, from `begin` to `end`."""

    name: str
    begin: float
    end: float
    federation_down: bool
    cut_off: str | None


@dataclass(frozen=True)
class Change:
    """From `at` on, callers need `cores` of each cluster."""

    at: float
    cores: Cores


@dataclass(frozen=True)
class Need:
    """Any number of replicas from `low` to `high` is what a load takes; an HPA lets it be."""

    low: int
    high: int


@dataclass(frozen=True)
class Course:
    """A federation's phases and changes of load, in order."""

    federation: Federation
    clusters: tuple[str, ...]
    pod_cores: float
    places: int
    spans: tuple[Span, ...]
    changes: tuple[Change, ...]

    @property
    def on_premise(self) -> str:
        """The cluster that owns its machines."""
        return self.federation.on_premise.cluster

    def cores_at(self, moment: float) -> Cores:
        """What callers want of each cluster; before the first change, as from it on."""
        past = [change for change in self.changes if change.at <= moment]
        return past[-1].cores if past else self.changes[0].cores

    def needs(self, cores: Cores) -> dict[str, Need]:
        """The replicas that each cluster should come to while this load lasts."""
        target = self.pod_cores * self.federation.target_percent / 100
        full = math.ceil(cores[self.on_premise] / target) >= self.places
        settled = self.taken(cores, is_full=full)
        needs = {name: _need(each / target, self._floor) for name, each in settled.items()}
        if full:
            needs[self.on_premise] = Need(self.places, self.places)
        return needs

    def taken(self, cores: Cores, *, is_full: bool) -> dict[str, float]:
        """What each cluster really gets: where all places on premise are taken, callers that find
        it busy go elsewhere.
        """
        if not is_full:
            return dict(cores)
        own = self.on_premise
        leave = self.federation.on_premise.calls_leave_at_percent / 100
        over = max(0.0, cores[own] - self.places * self.pod_cores * leave)
        others = len(self.clusters) - 1
        return {
            name: each - over if name == own else each + over / others
            for name, each in cores.items()
        }

    @property
    def _floor(self) -> int:
        """No cluster's HPA goes below its part of the least that the user wants."""
        return -(-self.federation.min_replicas // len(self.clusters))


def make_course(
    federation: Federation,
    archetype: Archetype,
    clusters: tuple[str, ...],
    others_pods: int,
    seed: int,
) -> Course:
    """The course of a profile and its seed; `others_pods` take places on premise, too."""
    places = federation.on_premise.machines * archetype.density - others_pods
    return Course(
        federation=federation,
        clusters=clusters,
        pod_cores=archetype.sizes[0].cpu_millicores / 1000,
        places=places,
        spans=tuple(_spans(federation)),
        changes=tuple(_changes(federation, seed)),
    )


def _spans(federation: Federation) -> Iterator[Span]:
    begin = 0.0
    for name, phase in federation.phases.items():
        end = begin + phase.seconds
        yield Span(name, begin, end, phase.federation_down, phase.cut_off)
        begin = end


def _changes(federation: Federation, seed: int) -> Iterator[Change]:
    drawn = random.Random(f"federation/{seed}")
    cores: dict[str, float] = {}
    begin = 0.0
    for phase in federation.phases.values():
        for step in phase.load:
            cores = {**cores, **step.cores}
            late = drawn.uniform(0, federation.jitter_seconds) if step.at else 0.0
            yield Change(begin + step.at * phase.seconds + late, cores)
        begin += phase.seconds


def _need(replicas: float, floor: int) -> Need:
    low = max(1, math.ceil(replicas / (1 + _TOLERANCE)))
    return Need(low, max(low, math.ceil(replicas / (1 - _TOLERANCE)), floor))
