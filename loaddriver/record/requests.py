"""One row per CapacityRequest that the load created, in a run without pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

from loaddriver.plan.manifests import ARCHETYPE_LABEL, GROUP_LABEL, STEP_LABEL, WORKLOAD_LABEL
from loaddriver.record.audit import AuditTimestamps
from loaddriver.record.recorder import Observations
from loaddriver.record.watching import RequestObservation


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A CapacityRequest of the load. Times are microseconds since 1970, None if not observed.

    `created` is when the API server received it, `acknowledged` when it had answered the
    operator's write; both are receipts if `source` is watch. One that was not acknowledged waited
    until it was deleted or observation ended. `due_micros` is when the plan asked for it.
    """

    cluster: str
    namespace: str
    name: str
    uid: str
    archetype: str
    workload: str
    group: str
    step: str
    created_micros: int
    acknowledged_micros: int | None
    deleted_micros: int | None
    observed_until_micros: int
    source: str
    due_micros: int | None = None

    @property
    def wait_began_micros(self) -> int:
        """Its due time, or its creation if that is unknown."""
        return self.created_micros if self.due_micros is None else self.due_micros


def build_request_rows(observed: Sequence[Observations]) -> list[RequestRow]:
    """All rows of all clusters, in order of creation; empty if the load created pods."""
    rows = [row for each in observed for row in _rows(each)]
    return sorted(rows, key=lambda row: (row.created_micros, row.cluster, row.uid))


def _rows(observed: Observations) -> Iterator[RequestRow]:
    log = observed.audit
    if log is not None:
        yield from (_logged(observed, log, uid) for uid in log.requests)
    for uid, observation in observed.watch.requests.items():
        if observation.of_load and (log is None or uid not in log.requests):
            yield _watched(observed, uid, observation)


def _logged(observed: Observations, log: AuditTimestamps, uid: str) -> RequestRow:
    created = log.requests[uid]
    meta = created.request
    name = (meta.namespace, meta.name)
    acknowledged, withdrawn = log.acknowledged.get(name), log.withdrawn.get(name)
    return RequestRow(
        cluster=observed.cluster,
        namespace=meta.namespace,
        name=meta.name,
        uid=uid,
        **_identity(meta.labels),
        created_micros=created.at_micros,
        acknowledged_micros=acknowledged,
        deleted_micros=withdrawn,
        observed_until_micros=observed.ended_micros,
        source="audit",
    )


def _watched(observed: Observations, uid: str, observation: RequestObservation) -> RequestRow:
    return RequestRow(
        cluster=observed.cluster,
        namespace=observation.namespace,
        name=observation.name,
        uid=uid,
        **_identity(observation.labels),
        created_micros=observation.created_micros,
        acknowledged_micros=observation.acknowledged_micros,
        deleted_micros=observation.deleted_micros,
        observed_until_micros=observed.ended_micros,
        source="watch",
    )


class _Identity(TypedDict):
    archetype: str
    workload: str
    group: str
    step: str


def _identity(labels: dict[str, str]) -> _Identity:
    return {
        "archetype": labels.get(ARCHETYPE_LABEL, ""),
        "workload": labels.get(WORKLOAD_LABEL, ""),
        "group": labels.get(GROUP_LABEL, ""),
        "step": labels.get(STEP_LABEL, ""),
    }
