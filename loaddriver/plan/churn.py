"""Plans which pods are deleted during the soak, and when.

Deletions are a Poisson process conditioned on its number: times are drawn independently, and the
number is exact, so that all seeds have the same load. Each cause has its own random stream.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from random import Random

from loaddriver.plan.records import RAMP, Level, Workload
from loaddriver.plan.times import soak_step
from loaddriver.plan.workloads import random_stream
from loaddriver.profile.loading import Profile
from loaddriver.profile.settings import ProfileSettings, Soak

# A new object's pods may not exist before, and a deletion would find none.
_SETTLED_SECONDS = 10.0
_BEFORE_THE_SOAK = float("-inf")


class PodSampler:
    """Samples pods of `workloads`, whose sizes over time are in `levels`."""

    def __init__(
        self, workloads: Sequence[Workload], levels: Sequence[Level], settings: ProfileSettings
    ) -> None:
        self._workloads = workloads
        self._history: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        soak = soak_step(settings)
        for level in levels:
            at = level.offset_seconds if level.step == soak else _BEFORE_THE_SOAK
            self._history[level.workload].append((at, level.replicas))
        names = {workload.name for workload in workloads}
        changes = {at for name in names for at, _ in self._history[name]}
        self._breakpoints = sorted({*changes, *(at + _SETTLED_SECONDS for at in changes)})
        self._sizes: list[int] = []
        self._cumulative: list[int] = []
        self._segment = -1

    def sample(self, at: float, where: float) -> tuple[Workload, int] | None:
        """The workload with the pod at `where` (0 to 1 of all pods), and its number of pods.

        None if there are no pods.
        """
        segment = bisect_right(self._breakpoints, at)
        if segment != self._segment:
            self._segment = segment
            self._sizes = [self._settled_pods(workload.name, at) for workload in self._workloads]
            self._cumulative = list(accumulate(self._sizes))
        if not self._cumulative or not self._cumulative[-1]:
            return None
        position = bisect_right(self._cumulative, where * self._cumulative[-1])
        return self._workloads[position], self._sizes[position]

    def _settled_pods(self, name: str, at: float) -> int:
        return min(self._size(name, at), self._size(name, at - _SETTLED_SECONDS))

    def _size(self, name: str, at: float) -> int:
        history = self._history[name]
        position = bisect_right(history, at, key=lambda change: change[0])
        return history[position - 1][1] if position else 0


@dataclass(frozen=True)
class ChurnDeletion:
    """Delete the pod of rank `rank` of `workload`, `offset_seconds` into the soak."""

    offset_seconds: float
    workload: Workload
    rank: int


def churn_deletions(
    profile: Profile, cluster: int, workloads: Sequence[Workload], levels: Sequence[Level]
) -> list[ChurnDeletion]:
    """One cluster's deletions in order of time; at any time all pods are equally likely.

    `workloads` and `levels` are those of the ramp and demand steps, without bursts. Jobs are left
    out if controllers create the pods: a deleted pod counts as a failed attempt, after which the
    controller backs off, so the rate would not be sustained.
    """
    settings = profile.settings
    deletable = [w for w in workloads if settings.load.mode == "cr" or w.kind != "Job"]
    remaining = _deletion_count(settings, cluster)
    deletions: list[ChurnDeletion] = []
    lifetimes = {
        each.name: each.mean_lifetime_seconds
        for each in profile.catalog.archetypes
        if each.mean_lifetime_seconds is not None
    }
    for archetype, lifetime in lifetimes.items():
        own = [workload for workload in deletable if workload.archetype == archetype]
        ends = _ends_of_life(settings.soak, own, lifetime, remaining)
        remaining -= ends
        random = random_stream(settings.seed, f"lifetimes/{cluster}/{archetype}")
        times = [random.uniform(0, settings.soak.seconds) for _ in range(ends)]
        deletions += _sample_pods(times, PodSampler(own, levels, settings), random)
    rest = [workload for workload in deletable if workload.archetype not in lifetimes] or deletable
    random = random_stream(settings.seed, f"churn/{cluster}")
    times = _churn_times(settings, cluster, remaining, random)
    deletions += _sample_pods(times, PodSampler(rest, levels, settings), random)
    return sorted(deletions, key=lambda deletion: deletion.offset_seconds)


def _deletion_count(settings: ProfileSettings, cluster: int) -> int:
    """This cluster's share of all deletions; the shares add up exactly."""
    total = round(settings.soak.churn_pods_per_second * settings.soak.seconds)
    return total // settings.clusters + (cluster < total % settings.clusters)


def _ends_of_life(soak: Soak, own: Sequence[Workload], lifetime: float, most: int) -> int:
    pods = sum(workload.replicas for workload in own if workload.origin == RAMP)
    return min(round(pods / lifetime * soak.seconds), most)


def _sample_pods(
    times: Sequence[float], sampler: PodSampler, random: Random
) -> Iterator[ChurnDeletion]:
    for time in sorted(times):
        # Drawn even if no pods are left, so that later draws stay the same.
        where, rank = random.random(), random.random()
        found = sampler.sample(time, where)
        if found is not None:
            workload, replicas = found
            yield ChurnDeletion(round(time, 6), workload, int(rank * replicas))


def _churn_times(
    settings: ProfileSettings, cluster: int, number: int, random: Random
) -> list[float]:
    """Random times, with higher density inside churn bursts."""
    boundaries = _burst_boundaries(settings, cluster)
    factor = settings.soak.churn_burst.factor if settings.soak.churn_burst else 1.0
    weights = [
        (end - begin) * (factor if in_burst else 1.0)
        for (begin, in_burst), (end, _) in pairwise(boundaries)
    ]
    cumulative_weights = [0.0, *accumulate(weights)]
    times: list[float] = []
    for _ in range(number):
        target = random.random() * cumulative_weights[-1]
        part = min(bisect_right(cumulative_weights, target), len(weights)) - 1
        begin, end = boundaries[part][0], boundaries[part + 1][0]
        times.append(begin + (end - begin) * (target - cumulative_weights[part]) / weights[part])
    return times


def _burst_boundaries(settings: ProfileSettings, cluster: int) -> list[tuple[float, bool]]:
    """The start of each part of the soak, with whether it is a burst; the end comes last."""
    seconds, burst = settings.soak.seconds, settings.soak.churn_burst
    boundaries = [(0.0, False)]
    if burst is not None:
        random = random_stream(settings.seed, f"churnBursts/{cluster}")
        begin = random.expovariate(1 / burst.every_seconds)
        while begin < seconds:
            boundaries.append((begin, True))
            end = begin + burst.seconds
            if end >= seconds:
                break
            boundaries.append((end, False))
            begin = end + random.expovariate(1 / burst.every_seconds)
    return [*boundaries, (seconds, False)]
