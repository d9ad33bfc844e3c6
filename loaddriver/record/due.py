"""When the plan asked for each pod: its due time, the start of its wait.

The k-th pod of an object is due when the request that asks for k pods is due in the plan, whatever
delays the request, the API server or the object's controller. Of a pod that the plan deletes
(churn) the replacement is due when the deletion is: a Deployment's controller need not wait for
anything.

Pods that the plan does not ask for have no due time, and their waits begin with their creation:
those that replace evicted, preempted, lost or failed pods; the replacements of a StatefulSet's
pods, which may only be created once the old ones have terminated; and those that an HPA asked for.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from loaddriver.load.files import EventResult, StepReleased
from loaddriver.plan.records import ChurnEvent, CreateEvent, Plan, Workload
from loaddriver.record.requests import RequestRow
from loaddriver.record.rows import ObjectKey, PodRow

# The clocks of the load's and the API server's hosts may disagree by this much, so that a pod may
# seem to exist before it was due.
CLOCK_TOLERANCE_MICROS = 50_000

PodName = tuple[str, str, str]
"""Cluster, namespace and name."""


@dataclass(frozen=True, slots=True)
class MissingPod:
    """A pod that the plan asked for and that was never created, although it was still wanted.

    It has waited from its due time until observation ended.
    """

    cluster: str
    archetype: str
    workload: str
    group: str
    due_micros: int
    observed_until_micros: int

    @property
    def waited_seconds(self) -> float:
        """Seconds from its due time to the end of observation."""
        return max(0, self.observed_until_micros - self.due_micros) / 1e6


class DueTimes:
    """The due times of a run: its plan, and what its load driver recorded.

    `clusters` are the cluster names in the order of the plan.
    """

    def __init__(
        self,
        plan: Plan,
        lines: Iterable[StepReleased | EventResult],
        clusters: Sequence[str],
    ) -> None:
        self._plan, self._clusters = plan, clusters
        self._releases: dict[int, StepReleased] = {}
        self._results: dict[str, EventResult] = {}
        for line in lines:
            if isinstance(line, StepReleased):
                self._releases[line.step] = line
            else:
                self._results[line.id] = line

    def of_pods(
        self, rows: Sequence[PodRow], until_micros: int
    ) -> tuple[list[PodRow], list[MissingPod]]:
        """The rows with their due times, and the pods never created until `until_micros`. Pure."""
        pods: defaultdict[ObjectKey, list[PodRow]] = defaultdict(list)
        for row in rows:
            pods[row.cluster, row.workload].append(row)
        levels, churned = self._levels(until_micros), self._churned()
        due: dict[str, int] = {}
        missing: list[MissingPod] = []
        for workload in self._plan.workloads:
            cluster = self._clusters[workload.cluster]
            slots = _DueSlots({} if workload.kind == "StatefulSet" else churned)
            slots.match(levels[cluster, workload.name], pods[cluster, workload.name])
            due |= slots.due
            missing += [_missing(cluster, workload, at, until_micros) for at in slots.open]
        return [replace(row, due_micros=due.get(row.uid)) for row in rows], missing

    def of_requests(self, rows: Sequence[RequestRow]) -> list[RequestRow]:
        """The rows of a load without pods, whose names the plan chooses, with due times. Pure."""
        due = {
            (self._clusters[event.cluster], event.name): self._due_micros(event)
            for event in self._plan.events
            if isinstance(event, CreateEvent)
        }
        return [replace(row, due_micros=due.get((row.cluster, row.name))) for row in rows]

    def _levels(self, until_micros: int) -> Mapping[ObjectKey, list[tuple[int, int]]]:
        """The wanted replicas of each workload over time, as far as they were due."""
        levels: defaultdict[ObjectKey, list[tuple[int, int]]] = defaultdict(list)
        for level in self._plan.levels:
            if level.step in self._releases:
                at = self._releases[level.step].due_micros(level.offset_seconds)
                if at <= until_micros:
                    key = self._clusters[level.cluster], level.workload
                    levels[key].append((at, level.replicas))
        return levels

    def _churned(self) -> dict[PodName, int]:
        """When the deletion of each churned pod was due, by cluster, namespace and name."""
        return {
            (self._clusters[event.cluster], event.namespace, result.name): due
            for event in self._plan.events
            if isinstance(event, ChurnEvent)
            and (result := self._results.get(event.id)) is not None
            and result.name
            and 200 <= result.status < 300
            and (due := self._due_micros(event)) is not None
        }

    def _due_micros(self, event: CreateEvent | ChurnEvent) -> int | None:
        released = self._releases.get(event.step)
        return None if released is None else released.due_micros(event.offset_seconds)


class _DueSlots:
    """The due times of one workload for which no pod has been created yet, in order.

    Never more are open than pods are wanted beyond those that exist: what was withdrawn before it
    was created is due no more.
    """

    def __init__(self, churned: Mapping[PodName, int]) -> None:
        self._churned = churned
        self._wanted = self._existing = 0
        self.due: dict[str, int] = {}
        self.open: deque[int] = deque()

    def match(self, levels: Iterable[tuple[int, int]], pods: Iterable[PodRow]) -> None:
        """Match pods, in order of creation, to what was asked for; fills in `due` by UID."""
        changes: list[tuple[int, int, Callable[[], None]]] = [
            (at - CLOCK_TOLERANCE_MICROS, 0, partial(self._ask, at, replicas))
            for at, replicas in levels
        ]
        for pod in pods:
            changes.append((pod.created_micros, 2, partial(self._create, pod)))
            if pod.deleted_micros is not None:
                removed_micros = max(pod.deleted_micros, pod.created_micros + 1)
                changes.append((removed_micros, 1, partial(self._remove, pod)))
        for _, _, change in sorted(changes, key=lambda each: each[:2]):
            change()
            while len(self.open) > max(0, self._wanted - self._existing):
                self.open.pop()

    def _ask(self, at_micros: int, replicas: int) -> None:
        self.open.extend([at_micros] * (replicas - self._wanted))
        self._wanted = replicas

    def _remove(self, pod: PodRow) -> None:
        self._existing -= 1
        due_micros = self._churned.get((pod.cluster, pod.namespace, pod.name))
        if due_micros is not None:
            self.open.append(due_micros)

    def _create(self, pod: PodRow) -> None:
        self._existing += 1
        if self.open:
            self.due[pod.uid] = min(self.open.popleft(), pod.created_micros)


def _missing(cluster: str, workload: Workload, due_micros: int, until_micros: int) -> MissingPod:
    return MissingPod(
        cluster=cluster,
        archetype=workload.archetype,
        workload=workload.name,
        group=workload.group or "",
        due_micros=due_micros,
        observed_until_micros=until_micros,
    )
