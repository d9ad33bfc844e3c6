"""Turns events of the plan into HTTP requests, and interprets responses. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from loaddriver.load.files import ClusterEndpoint
from loaddriver.plan.manifests import WORKLOAD_LABEL
from loaddriver.plan.records import ChurnEvent, CreateEvent, DeleteEvent, LoadEvent, ScaleEvent

MAX_ATTEMPTS = 6
_JSON = "application/json"
_MERGE_PATCH = "application/merge-patch+json"
_INITIAL_RETRY_SECONDS = 0.2
_MAX_RETRY_SECONDS = 10.0
_TOO_MANY_REQUESTS = 429
_CONFLICT = 409
_NOT_FOUND = 404
_NO_ANSWER = 0
_SERVER_ERRORS = 500


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    uid: str
    creation_timestamp: str
    deletion_timestamp: str | None = None


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class Pod(msgspec.Struct, frozen=True):
    """The fields of a Pod needed to choose one for churn."""

    metadata: _Metadata
    status: _Status = _Status()


class _PodList(msgspec.Struct, frozen=True):
    items: list[Pod] | None = None


_pod_list = msgspec.json.Decoder(_PodList)


class HttpRequest(NamedTuple):
    """One HTTP request to a cluster."""

    method: str
    url: str
    body: bytes = b""
    content_type: str = _JSON


def request_headers(endpoint: ClusterEndpoint, request: HttpRequest) -> dict[str, str]:
    """The headers of a request."""
    return {
        "Authorization": f"Bearer {endpoint.token}",
        "Content-Type": request.content_type,
        "Accept": _JSON,
    }


def event_request(
    endpoint: ClusterEndpoint, event: CreateEvent | ScaleEvent | DeleteEvent
) -> HttpRequest:
    """The request of an event other than a churn, which has to list pods first."""
    url = f"{endpoint.url}{event.path}"
    match event:
        case CreateEvent():
            return HttpRequest("POST", url, bytes(event.body))
        case ScaleEvent():
            body = msgspec.json.encode({"spec": {"replicas": event.replicas}})
            return HttpRequest("PATCH", f"{url}/scale", body, _MERGE_PATCH)
        case DeleteEvent():
            return HttpRequest(
                "DELETE", url, msgspec.json.encode({"propagationPolicy": "Background"})
            )


def verb_of(event: LoadEvent) -> str:
    """The verb of an event in results: create, scale, delete or churn."""
    return str(event.__struct_config__.tag)


def list_request(endpoint: ClusterEndpoint, event: ChurnEvent) -> HttpRequest:
    """List the pods of a workload from the API server's cache.

    Reading etcd for each churn would be additional load.
    """
    selector = {"labelSelector": f"{WORKLOAD_LABEL}={event.workload}", "resourceVersion": "0"}
    query = urlencode(selector)
    return HttpRequest("GET", f"{_pods_url(endpoint, event)}?{query}")


def delete_pod_request(endpoint: ClusterEndpoint, event: ChurnEvent, pod: Pod) -> HttpRequest:
    """Delete this pod by UID, never a later one of the same name."""
    body = msgspec.json.encode({"preconditions": {"uid": pod.metadata.uid}})
    return HttpRequest("DELETE", f"{_pods_url(endpoint, event)}/{quote(pod.metadata.name)}", body)


def _pods_url(endpoint: ClusterEndpoint, event: ChurnEvent) -> str:
    return f"{endpoint.url}/api/v1/namespaces/{quote(event.namespace)}/pods"


def pods_of(body: bytes) -> list[Pod]:
    """The pods in the response to a list. Raises msgspec.DecodeError."""
    return _pod_list.decode(body).items or []


def pod_at_rank(pods: Sequence[Pod], rank: int) -> Pod | None:
    """The live pod of that rank, oldest first and then by name; ranks wrap around.

    Controllers choose pod names, so a plan can only fix a rank.
    """
    live = [
        pod
        for pod in pods
        if pod.metadata.deletion_timestamp is None
        and pod.status.phase not in ("Succeeded", "Failed")
    ]
    live.sort(key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name))
    return live[rank % len(live)] if live else None


def retry_delay_seconds(status: int, attempt: int, retry_after: str | None) -> float | None:
    """The delay before the next attempt; None to give up.

    Attempts count from 1. The server's Retry-After takes precedence over exponential backoff; both
    are capped.
    """
    retryable = status in (_TOO_MANY_REQUESTS, _NO_ANSWER) or status >= _SERVER_ERRORS
    if not retryable or attempt >= MAX_ATTEMPTS:
        return None
    if retry_after is not None and retry_after.isdecimal():
        return min(float(retry_after), _MAX_RETRY_SECONDS)
    return min(_INITIAL_RETRY_SECONDS * 2.0 ** (attempt - 1), _MAX_RETRY_SECONDS)


def succeeded(verb: str, status: int, attempts: int) -> bool:
    """Whether the event took effect.

    An earlier attempt may have succeeded although its response was lost, so a retried create may
    find its object existing, and a retried delete may find it gone. The pod of a churn may have
    ended by itself, and its name may have been reused.
    """
    if 200 <= status < 300:
        return True
    retried = attempts > 1
    return {
        "create": retried and status == _CONFLICT,
        "delete": retried and status == _NOT_FOUND,
        "churn": status in (_NOT_FOUND, _CONFLICT),
    }.get(verb, False)
