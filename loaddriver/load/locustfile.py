"""The load process: Locust users that create, scale and delete objects and pods on schedule.

Run by Locust, not imported. The paths of its files are in environment variables, because Locust
owns the command line. Locust's own latency statistics are rounded and not used; the results file
has the exact times.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import gevent
import msgspec
from locust import FastHttpUser, LoadTestShape, task
from locust.env import Environment

from loaddriver.load.dispatch import Dispatcher, DueEvent, users_for
from loaddriver.load.files import (
    CLUSTERS_VARIABLE,
    CONTROL_VARIABLE,
    LOAD_BUG,
    PLAN_VARIABLE,
    RESULTS_VARIABLE,
    ClusterEndpoint,
    EventResult,
    LoadStarted,
    ResultLine,
    read_control,
    read_endpoints,
)
from loaddriver.load.requests import (
    HttpRequest,
    delete_pod_request,
    event_request,
    list_request,
    pod_at_rank,
    pods_of,
    request_headers,
    retry_delay_seconds,
    succeeded,
    verb_of,
)
from loaddriver.plan.files import load_plan
from loaddriver.plan.records import ChurnEvent

_OK = 200
_DRAIN_TIMEOUT_SECONDS = 5.0

_ENDPOINTS = read_endpoints(Path(os.environ[CLUSTERS_VARIABLE]))
_CONTROL = Path(os.environ[CONTROL_VARIABLE])
_RESULTS = os.open(os.environ[RESULTS_VARIABLE], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
_EVENTS = load_plan(Path(os.environ[PLAN_VARIABLE])).events
_DISPATCHER = Dispatcher(_EVENTS, time.time)
_USERS = users_for(_EVENTS)


def _record(line: ResultLine) -> None:
    os.write(_RESULTS, msgspec.json.encode(line) + b"\n")


def _checked_tls(cafile: str | None = None) -> gevent.ssl.SSLContext:  # noqa: ARG001
    """A context that trusts only the clusters' CAs, ignoring `cafile`.

    Loading the system's CAs costs more CPU than the load's own requests.
    """
    context = gevent.ssl.SSLContext(gevent.ssl.PROTOCOL_TLS_CLIENT)
    for endpoint in _ENDPOINTS:
        context.load_verify_locations(endpoint.ca_file)
    return context


class Response(msgspec.Struct, frozen=True):
    """The last response to a request, and the number of attempts."""

    status: int
    attempts: int
    body: bytes
    error: str


class Tenant(FastHttpUser):
    """A user that takes the next due event and sends it."""

    host = _ENDPOINTS[0].url
    insecure = any(endpoint.ca_file is None for endpoint in _ENDPOINTS)
    ssl_context_factory = None if insecure else staticmethod(_checked_tls)
    network_timeout = 30.0
    connection_timeout = 10.0
    concurrency = _USERS

    def __init__(self, environment: Environment) -> None:
        """Share one connection pool between all users.

        With a pool per user, TLS handshakes would cost more than the requests.
        """
        super().__init__(environment)
        Tenant.client_pool = self.client.client.clientpool

    @task
    def play(self) -> None:
        """Play one event."""
        _DISPATCHER.play_next(self._send)

    def _send(self, due: DueEvent) -> None:
        sent = time.time()
        try:
            name, last_response = self._play(due)
        except Exception as error:  # noqa: BLE001  any failure is recorded
            name, last_response = "", Response(0, 1, b"", f"{LOAD_BUG}: {error!r}")
        _record(_result(due, name, sent, last_response))

    def _play(self, due: DueEvent) -> tuple[str, Response]:
        event, endpoint = due.event, _ENDPOINTS[due.event.cluster]
        if isinstance(event, ChurnEvent):
            return self._churn(event, endpoint)
        return event.name, self._send_request(endpoint, event_request(endpoint, event))

    def _churn(self, event: ChurnEvent, endpoint: ClusterEndpoint) -> tuple[str, Response]:
        listed = self._send_request(endpoint, list_request(endpoint, event))
        if listed.status != _OK:
            return "", listed
        pod = pod_at_rank(pods_of(listed.body), event.rank)
        if pod is None:
            return "", listed  # no live pod: nothing to do
        return pod.metadata.name, self._send_request(
            endpoint, delete_pod_request(endpoint, event, pod)
        )

    def _send_request(self, endpoint: ClusterEndpoint, request: HttpRequest) -> Response:
        headers, attempts = request_headers(endpoint, request), 0
        while True:
            attempts += 1
            with self.client.request(
                request.method,
                request.url,
                name=f"{request.method} {endpoint.name}",
                data=request.body,  # type: ignore[arg-type]  # bytes are sent as they are
                headers=headers,
                catch_response=True,
            ) as response:
                response.success()
            retry_after = (response.headers or {}).get("Retry-After")
            pause = retry_delay_seconds(response.status_code, attempts, retry_after)
            if pause is None:
                # Locust treats every HTTP error as an error; here only a missing response is one.
                error = "" if response.status_code else f"no response: {response.error}"
                return Response(response.status_code, attempts, response.content or b"", error)
            gevent.sleep(pause)


def _result(due: DueEvent, name: str, sent: float, last_response: Response) -> EventResult:
    verb = verb_of(due.event)
    ok = not last_response.error and succeeded(verb, last_response.status, last_response.attempts)
    error_body = "" if ok else last_response.body[:300].decode(errors="replace")
    return EventResult(
        id=due.event.id,
        cluster=due.event.cluster,
        step=due.event.step,
        verb=verb,
        name=name,
        due=due.at,
        sent=sent,
        done=time.time(),
        lateness_seconds=max(0.0, sent - due.at),
        status=last_response.status,
        attempts=last_response.attempts,
        ok=ok,
        detail=last_response.error or error_body,
    )


class StepReleases(LoadTestShape):
    """Follows the control file; the number of users is constant."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # published half typed
        self._started = False
        self._stopped_at: float | None = None

    def tick(self) -> tuple[int, float] | None:
        """Called by Locust every second; returning None ends the process with exit code 0."""
        control = read_control(_CONTROL)
        for released in _DISPATCHER.follow(control):
            _record(released)
        if not self._started and self.runner is not None and self.runner.user_count == _USERS:
            self._started = True
            _record(LoadStarted(at=time.time()))
        return None if control.stop and self._drained() else (_USERS, _USERS)

    def _drained(self) -> bool:
        """Whether all responses have arrived or timed out."""
        self._stopped_at = self._stopped_at or time.monotonic()
        waited = time.monotonic() - self._stopped_at
        return _DISPATCHER.idle or waited > _DRAIN_TIMEOUT_SECONDS
