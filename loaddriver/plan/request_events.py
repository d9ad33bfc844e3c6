"""Requests in `cr` mode, where the load driver creates CapacityRequests itself.

No controller recreates a CapacityRequest, so the plan does: a churned one is deleted and a new one
created in its place. The plan chooses the names, so all requests are known in advance.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

import msgspec

from loaddriver.plan.churn import ChurnDeletion
from loaddriver.plan.manifests import capacity_request_body, manifest_path, object_path
from loaddriver.plan.records import RAMP, CreateEvent, DeleteEvent, Level, LoadEvent, Workload
from loaddriver.plan.times import REQUESTS_PER_SECOND, soak_step
from loaddriver.profile.catalog import Catalog
from loaddriver.profile.settings import ProfileSettings

# The minimum time between creation and deletion, so that the creation has been answered.
_LEAST_LIFE_SECONDS = 1.0


def request_events(
    settings: ProfileSettings,
    workloads: Mapping[str, Workload],
    levels: Sequence[Level],
    deletions: Sequence[ChurnDeletion],
    catalog: Catalog,
) -> Iterator[LoadEvent]:
    """Create and delete one cluster's CapacityRequests.

    `levels` and `deletions` are in order of time.
    """
    changes: list[tuple[int, float, Level | ChurnDeletion]] = [
        *((level.step, level.offset_seconds, level) for level in levels),
        *((soak_step(settings), deletion.offset_seconds, deletion) for deletion in deletions),
    ]
    changes.sort(key=lambda change: change[:2])
    spacing = _RequestSpacing(settings, levels)
    sets = {name: _RequestSet(workload, catalog) for name, workload in workloads.items()}
    for step, offset, change in changes:
        if isinstance(change, ChurnDeletion):
            yield from sets[change.workload.name].replace(change.rank, step, offset)
        else:
            yield from sets[change.workload].resize(change.replicas, step, spacing.after(change))


class _RequestSpacing:
    """Spreads the requests of a workload, so that they arrive at an even rate."""

    def __init__(self, settings: ProfileSettings, levels: Sequence[Level]) -> None:
        self._step_seconds = settings.ramp.step_seconds
        self._ramp_pods: Counter[int] = Counter()
        for level in levels:
            if level.origin == RAMP:
                self._ramp_pods[level.step] += level.replicas
        self._free_from: defaultdict[int, float] = defaultdict(float)

    def after(self, level: Level) -> Iterator[float]:
        """Offsets of the requests of a level; outside the ramp they share one rate limit."""
        if level.origin == RAMP:
            between = self._step_seconds / self._ramp_pods[level.step]
            for number in count():
                yield round(level.offset_seconds + number * between, 6)
        while True:
            at = max(level.offset_seconds, self._free_from[level.step])
            self._free_from[level.step] = at + 1 / REQUESTS_PER_SECOND
            yield round(at, 6)


class _Request(NamedTuple):
    name: str
    step: int
    offset_seconds: float

    def settled_at(self, step: int) -> float:
        """The offset in `step` from which on its creation counts as answered."""
        return self.offset_seconds + _LEAST_LIFE_SECONDS if self.step == step else 0.0


class _RequestSet:
    """The existing CapacityRequests of one workload, by position."""

    def __init__(self, workload: Workload, catalog: Catalog) -> None:
        self._workload, self._catalog = workload, catalog
        self._present: list[_Request] = []
        self._made: Counter[int] = Counter()

    def resize(self, replicas: int, step: int, offsets: Iterator[float]) -> Iterator[LoadEvent]:
        """Create or delete requests at the end."""
        while len(self._present) < replicas:
            yield self._create(len(self._present), step, next(offsets))
        while len(self._present) > replicas:
            yield self._delete(self._present.pop(), step, next(offsets))

    def replace(self, rank: int, step: int, offset: float) -> Iterator[LoadEvent]:
        """Delete one and create another in its place; skips those that are too young."""
        size = len(self._present)
        positions = [(rank + further) % size for further in range(size)]
        old = (each for each in positions if self._present[each].settled_at(step) <= offset)
        position = next(old, positions[0])
        deletion = self._delete(self._present[position], step, offset)
        yield deletion
        yield self._create(position, step, deletion.offset_seconds)

    def _create(self, position: int, step: int, offset: float) -> CreateEvent:
        made = self._made[position]
        self._made[position] += 1
        name = f"{self._workload.name}-{position}" + (f"g{made}" if made else "")
        self._present[position : position + 1] = [_Request(name, step, offset)]
        body = capacity_request_body(self._workload, self._catalog, name)
        return CreateEvent(
            id=f"{self._workload.cluster}-{name}",
            cluster=self._workload.cluster,
            step=step,
            offset_seconds=offset,
            path=manifest_path(body),
            name=name,
            body=msgspec.Raw(msgspec.json.encode(body)),
        )

    def _delete(self, request: _Request, step: int, offset: float) -> DeleteEvent:
        return DeleteEvent(
            id=f"{self._workload.cluster}-{request.name}-delete",
            cluster=self._workload.cluster,
            step=step,
            offset_seconds=round(max(offset, request.settled_at(step)), 6),
            path=object_path("CapacityRequest", self._workload.namespace, request.name),
            name=request.name,
        )
