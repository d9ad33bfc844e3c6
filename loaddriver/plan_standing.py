"""How many pods of each workload can be counted on at a moment of the soak."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate

from loaddriver.plan.records import Level, Workload
from loaddriver.plan.times import soak_step
from loaddriver.profile.settings import ProfileSettings

# Until then a new object's pods may not exist, and a request to delete one would find none.
_SETTLED_SECONDS = 10.0
_BEFORE_THE_SOAK = float("-inf")


class PodSampler:
    """Picks pods among `workloads`, of which `levels` says how large each is and when."""

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
        """The workload in which the pod at `where` (0 to 1 of all pods) lies, and its pods.

        None when nobody has any.
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
