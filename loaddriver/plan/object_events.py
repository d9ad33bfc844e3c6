"""Requests in `pods` mode, where controllers create the pods: one object per workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from loaddriver.plan.churn import ChurnDeletion
from loaddriver.plan.manifests import budget_body, manifest_path, object_path, workload_body
from loaddriver.plan.records import (
    ChurnEvent,
    CreateEvent,
    DeleteEvent,
    Level,
    LoadEvent,
    ScaleEvent,
    Workload,
)
from loaddriver.plan.times import soak_step
from loaddriver.profile.catalog import Catalog
from loaddriver.profile.settings import ProfileSettings


def object_events(
    workloads: Mapping[str, Workload], levels: Sequence[Level], catalog: Catalog
) -> Iterator[LoadEvent]:
    """Create, scale and delete one cluster's objects according to `levels`, in order of time.

    A workload's PodDisruptionBudget is created before it and deleted with it.
    """
    seen: Counter[str] = Counter()
    for level in levels:
        workload = workloads[level.workload]
        changes = seen[level.workload]
        seen[level.workload] += 1
        budget = budget_body(workload, catalog)
        if changes == 0:
            if budget is not None:
                yield _create(workload, level, budget)
            yield _create(workload, level, workload_body(workload, catalog))
        elif workload.atomic:
            yield _delete(workload, level, workload.kind)
            if budget is not None:
                yield _delete(workload, level, budget["kind"])
        else:
            yield _scale(workload, level, changes)


def churn_events(
    settings: ProfileSettings, cluster: int, deletions: Sequence[ChurnDeletion]
) -> Iterator[ChurnEvent]:
    """Delete pods, which their controllers replace."""
    for position, deletion in enumerate(deletions):
        yield ChurnEvent(
            id=f"{cluster}-churn-{position}",
            cluster=cluster,
            step=soak_step(settings),
            offset_seconds=deletion.offset_seconds,
            namespace=deletion.workload.namespace,
            workload=deletion.workload.name,
            rank=deletion.rank,
        )


def _create(workload: Workload, level: Level, body: dict[str, Any]) -> CreateEvent:
    return CreateEvent(
        id=_id(workload, body["kind"]),
        cluster=workload.cluster,
        step=level.step,
        offset_seconds=level.offset_seconds,
        path=manifest_path(body),
        name=workload.name,
        body=msgspec.Raw(msgspec.json.encode(body)),
    )


def _scale(workload: Workload, level: Level, changes: int) -> ScaleEvent:
    return ScaleEvent(
        id=f"{workload.cluster}-{workload.name}-scale-{changes}",
        cluster=workload.cluster,
        step=level.step,
        offset_seconds=level.offset_seconds,
        path=object_path(workload.kind, workload.namespace, workload.name),
        name=workload.name,
        replicas=level.replicas,
    )


def _delete(workload: Workload, level: Level, kind: str) -> DeleteEvent:
    return DeleteEvent(
        id=f"{_id(workload, kind)}-delete",
        cluster=workload.cluster,
        step=level.step,
        offset_seconds=level.offset_seconds,
        path=object_path(kind, workload.namespace, workload.name),
        name=workload.name,
    )


def _id(workload: Workload, kind: str) -> str:
    return f"{workload.cluster}-{workload.name}{'' if kind == workload.kind else '-budget'}"
