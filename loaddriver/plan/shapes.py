"""Plans bursts and demand steps.

The state after a demand step depends only on its factor, not on earlier steps: back at 1, every
workload has its replicas of the ramp. An atomic workload that was deleted is recreated under a new
name, because its controller may still be deleting pods of the old one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

import msgspec

from loaddriver.apportion import apportion
from loaddriver.errors import ProfileError
from loaddriver.plan.records import Level, Workload
from loaddriver.plan.times import REQUESTS_PER_SECOND, step_and_offset
from loaddriver.plan.workloads import draw_objects, random_stream
from loaddriver.profile.loading import Profile
from loaddriver.profile.settings import Burst


def burst_workloads(profile: Profile) -> Iterator[tuple[Workload, Level, Level]]:
    """Each object of all bursts, with its creation and its deletion.

    Objects alternate between the clusters from a random one on, unless the burst names a cluster.
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
        created_at = burst.at_seconds + sent[cluster] / REQUESTS_PER_SECOND
        sent[cluster] += 1
        step, offset = step_and_offset(settings, burst.phase, created_at)
        name = f"{burst.archetype}-b{number}-{position + 1:05d}"
        workload = spec.to_workload(name, cluster, step, f"burst-{number}")
        deletion = step_and_offset(settings, burst.phase, created_at + burst.duration_seconds)
        yield (
            workload,
            _level(workload, step, offset, workload.replicas),
            _level(workload, *deletion, 0),
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


Slot = tuple[int, int]
"""The position of a workload of the ramp, and the number of its copy; 0 is itself."""
State = Mapping[Slot, int]
"""Replicas by slot; a missing slot does not exist."""


def demand_after(base: Sequence[Workload], factor: float) -> dict[Slot, int]:
    """The replicas of `base`, in order of who stays longest, at `factor` times its pods.

    Atomic workloads are taken as far as they fit, by archetype; workloads that can be scaled make
    the sum exact.
    """
    target = round(factor * sum(workload.replicas for workload in base))
    state: dict[Slot, int] = {}
    for archetype in dict.fromkeys(workload.archetype for workload in base):
        atomic = [
            (position, workload.replicas)
            for position, workload in enumerate(base)
            if workload.atomic and workload.archetype == archetype
        ]
        state.update(_atomic_after(atomic, factor))
    scalable = {
        (position, 0): float(workload.replicas)
        for position, workload in enumerate(base)
        if not workload.atomic
    }
    if scalable:
        state.update(apportion(target - sum(state.values()), scalable))
    return state


def _atomic_after(atomic: Sequence[tuple[int, int]], factor: float) -> dict[Slot, int]:
    """The first workloads that fit into `factor` times their pods; above 1, also copies."""
    budget = factor * sum(replicas for _, replicas in atomic)
    state: dict[Slot, int] = {}
    for copy in count() if atomic else ():
        for position, replicas in atomic:
            if replicas > budget + 1e-9:
                return state
            budget -= replicas
            state[position, copy] = replicas
    return state


class DemandSteps:
    """The demand steps of one cluster; `base` are the workloads of its ramp."""

    def __init__(self, profile: Profile, cluster: int, base: Sequence[Workload]) -> None:
        self._profile = profile
        self._base = list(base)
        random_stream(profile.settings.seed, f"demandSteps/{cluster}").shuffle(self._base)
        self._present: dict[Slot, Workload] = {}
        self._made: dict[str, int] = {}

    def plan(self) -> tuple[list[Workload], list[Level]]:
        """Return recreated and new workloads, and all changes in order of time."""
        workloads: list[Workload] = []
        levels: list[Level] = []
        before = self._start()
        done_at = 0.0
        for number, step in enumerate(self._profile.settings.demand_steps):
            self._check_overlap(number, step.at_seconds, done_at)
            after = demand_after(self._base, step.factor)
            for position, (slot, replicas) in enumerate(_changes(before, after)):
                done_at = step.at_seconds + position / REQUESTS_PER_SECOND
                if replicas and slot not in self._present:
                    workloads.append(self._recreated(slot, f"demand-{number}"))
                levels.append(self._level(slot, done_at, replicas, f"demand-{number}"))
            before = after
        return workloads, levels

    def _start(self) -> dict[Slot, int]:
        self._present = {(position, 0): each for position, each in enumerate(self._base)}
        return {slot: workload.replicas for slot, workload in self._present.items()}

    def _recreated(self, slot: Slot, origin: str) -> Workload:
        original = self._base[slot[0]]
        self._made[original.name] = self._made.get(original.name, 0) + 1
        name = f"{original.name}-r{self._made[original.name]}"
        self._present[slot] = msgspec.structs.replace(
            original,
            name=name,
            step=step_and_offset(self._profile.settings, "soak", 0.0)[0],
            group=name if original.group is not None else None,
            origin=origin,
        )
        return self._present[slot]

    def _level(self, slot: Slot, at_seconds: float, replicas: int, origin: str) -> Level:
        workload = self._present[slot]
        if workload.atomic and not replicas:
            del self._present[slot]
        step, offset = step_and_offset(self._profile.settings, "soak", at_seconds)
        return Level(
            cluster=workload.cluster,
            workload=workload.name,
            step=step,
            offset_seconds=offset,
            replicas=replicas,
            origin=origin,
        )

    def _check_overlap(self, number: int, at_seconds: float, done_at: float) -> None:
        if number and at_seconds <= done_at:
            raise ProfileError(
                [
                    f"{self._profile.name}/profile.yaml: demandSteps[{number}].atSeconds = "
                    f"{at_seconds:g}: the previous step takes until {done_at:.1f} s; start it later"
                ]
            )


def _changes(before: State, after: State) -> Iterator[tuple[Slot, int]]:
    """The differences, reductions first, so that capacity is freed before it is needed."""
    slots = sorted({*before, *after})
    changed = [slot for slot in slots if before.get(slot, 0) != after.get(slot, 0)]
    changed.sort(key=lambda slot: after.get(slot, 0) > before.get(slot, 0))
    for slot in changed:
        yield slot, after.get(slot, 0)
