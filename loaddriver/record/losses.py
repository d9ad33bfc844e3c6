"""Successful requests of the load that the recording lacks: proof of lost data.

The driver records the responses independently. Each successful request must have a line in the
audit log, if there is one, and the object it created or deleted must appear in the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from loaddriver.load.files import EventResult
from loaddriver.plan.records import ChurnEvent, CreateEvent, DeleteEvent, LoadEvent, ScaleEvent
from loaddriver.record.audit import Name, Write
from loaddriver.record.recorder import Observations
from loaddriver.record.requests import RequestRow
from loaddriver.record.rows import PodRow

_REQUESTS = "capacityrequests"
_LOGGED = frozenset({"deployments", "statefulsets", "daemonsets", "jobs", _REQUESTS})


@dataclass(frozen=True)
class LoadLosses:
    """Successful requests without their audit log line or row.

    `without_row` counts created CapacityRequests, and deleted CapacityRequests and pods. Workloads
    and their scaling have no rows of their own: their pods are created by controllers.
    """

    without_line: int
    without_row: int


class _GrantedRequest(NamedTuple):
    """A request of the load driver that succeeded."""

    cluster: str
    what: str
    name: Name

    @property
    def write(self) -> Write:
        return self.what, self.name

    @property
    def shows_in_rows(self) -> bool:
        return self.what in ("delete pods", f"create {_REQUESTS}", f"delete {_REQUESTS}")


def load_losses(
    events: Iterable[LoadEvent],
    results: Sequence[EventResult],
    observed: Sequence[Observations],
    pods: Sequence[PodRow],
    requests: Sequence[RequestRow],
) -> LoadLosses:
    """Compare the load's successful requests with the recording.

    `observed` is in the order of the plan's cluster numbers; a cluster without an audit log lacks
    no lines.
    """
    granted_requests = list(_granted_requests(events, results, [each.cluster for each in observed]))
    logs = {each.cluster: each.audit.load_writes for each in observed if each.audit is not None}
    rows = Counter(_shown_by_rows(pods, requests))
    return LoadLosses(
        without_line=_missing(granted_requests, logs),
        without_row=sum(each.shows_in_rows and not rows[each] for each in granted_requests),
    )


def _granted_requests(
    events: Iterable[LoadEvent], results: Sequence[EventResult], clusters: Sequence[str]
) -> Iterator[_GrantedRequest]:
    """Requests that succeeded at the first attempt: of retries, the successful one is unknown."""
    planned = {event.id: event for event in events}
    for result in results:
        event = planned.get(result.id)
        if event is None or result.attempts != 1 or not 200 <= result.status < 300:
            continue
        granted = _granted_request(event, result, clusters[event.cluster])
        if granted is not None:
            yield granted


def _granted_request(event: LoadEvent, result: EventResult, cluster: str) -> _GrantedRequest | None:
    if isinstance(event, ChurnEvent):
        name = (event.namespace, result.name)
        return _GrantedRequest(cluster, "delete pods", name) if result.name else None
    resource, namespace = resource_and_namespace(event)
    if resource not in _LOGGED:
        return None
    if isinstance(event, CreateEvent):
        return _GrantedRequest(cluster, f"create {resource}", (namespace, event.name))
    if isinstance(event, ScaleEvent):
        return _GrantedRequest(cluster, f"patch {resource}/scale", (namespace, event.name))
    return _GrantedRequest(cluster, f"delete {resource}", (namespace, event.name))


def resource_and_namespace(event: CreateEvent | ScaleEvent | DeleteEvent) -> tuple[str, str]:
    """Resource and namespace of an object, from its API path."""
    parts = event.path.strip("/").split("/")
    if "namespaces" not in parts[:-2]:
        return "", ""
    position = parts.index("namespaces")
    return parts[position + 2], parts[position + 1]


def _missing(
    granted_requests: Iterable[_GrantedRequest], logs: Mapping[str, Counter[Write]]
) -> int:
    wanted = Counter(granted for granted in granted_requests if granted.cluster in logs)
    return sum(max(0, n - logs[each.cluster][each.write]) for each, n in wanted.items())


def _shown_by_rows(
    pods: Iterable[PodRow], requests: Iterable[RequestRow]
) -> Iterator[_GrantedRequest]:
    """The requests that the rows confirm."""
    for pod in pods:
        if pod.deleted_micros is not None:
            yield _GrantedRequest(pod.cluster, "delete pods", (pod.namespace, pod.name))
    for request in requests:
        name = (request.namespace, request.name)
        yield _GrantedRequest(request.cluster, f"create {_REQUESTS}", name)
        if request.deleted_micros is not None:
            yield _GrantedRequest(request.cluster, f"delete {_REQUESTS}", name)
