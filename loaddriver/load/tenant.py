"""The Locust user that sends the events of a plan when they are due."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar

import gevent
import msgspec
from locust import FastHttpUser, task
from locust.env import Environment

from loaddriver.load.dispatch import Dispatcher, DueEvent
from loaddriver.load.files import LOAD_BUG, ClusterEndpoint, EventResult
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
from loaddriver.plan.records import ChurnEvent

_OK = 200


class Response(msgspec.Struct, frozen=True):
    """The last response to a request, and the number of attempts."""

    status: int
    attempts: int
    body: bytes
    error: str


class Tenant(FastHttpUser):
    """A user that takes the next due event and sends it. `equip` comes before the first one."""

    network_timeout = 30.0
    connection_timeout = 10.0
    endpoints: ClassVar[Sequence[ClusterEndpoint]] = ()
    dispatcher: ClassVar[Dispatcher]
    record: ClassVar[Callable[[EventResult], None]]

    @classmethod
    def equip(
        cls,
        endpoints: Sequence[ClusterEndpoint],
        dispatcher: Dispatcher,
        users: int,
        record: Callable[[EventResult], None],
    ) -> None:
        """Say what all users play, how many there will be, and who records their results."""
        cls.endpoints, cls.dispatcher, cls.record = endpoints, dispatcher, record
        cls.host, cls.concurrency = endpoints[0].url, users
        cls.insecure = not all(endpoint.verified for endpoint in endpoints)
        cls.ssl_context_factory = None if cls.insecure else cls._checked_tls

    @classmethod
    def _checked_tls(cls, cafile: str | None = None) -> gevent.ssl.SSLContext:  # noqa: ARG003
        """A context that trusts only the clusters' CAs, ignoring `cafile`.

        Loading the system's CAs costs more CPU than the load's own requests.
        """
        context = gevent.ssl.SSLContext(gevent.ssl.PROTOCOL_TLS_CLIENT)
        for endpoint in cls.endpoints:
            context.load_verify_locations(endpoint.ca_file, cadata=endpoint.ca_pem)
        return context

    def __init__(self, environment: Environment) -> None:
        """Share one connection pool between all users.

        With a pool per user, TLS handshakes would cost more than the requests.
        """
        super().__init__(environment)
        Tenant.client_pool = self.client.client.clientpool

    @task
    def play(self) -> None:
        """Play one event."""
        self.dispatcher.play_next(self._send)

    def _send(self, due: DueEvent) -> None:
        sent = time.time()
        try:
            name, last_response = self._play(due)
        except Exception as error:  # noqa: BLE001  any failure is recorded
            name, last_response = "", Response(0, 1, b"", f"{LOAD_BUG}: {error!r}")
        type(self).record(_result(due, name, sent, last_response))

    def _play(self, due: DueEvent) -> tuple[str, Response]:
        event, endpoint = due.event, self.endpoints[due.event.cluster]
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
