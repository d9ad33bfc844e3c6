"""Leader election by a Lease. The leader stops before its lease expires; the others stand by.

Clocks of different machines are not compared: a candidate counts from when it observed the holder's
last renewal.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import msgspec

from bigfleet.kube.client import (
    CONFLICT,
    CONNECTION_ERRORS,
    FORBIDDEN,
    NOT_FOUND,
    ApiError,
    KubeClient,
)
from bigfleet.kube.timestamps import rfc3339_micro
from bigfleet.model.errors import BigFleetError
from bigfleet.observe import metrics
from bigfleet.tasks import run_until_first_completes

_LOG = logging.getLogger(__name__)
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
# At most this long, because a holder that stops cleanly releases the lease at once.
_POLL_INTERVAL_SECONDS = 2.0
_RELEASE_TIMEOUT_SECONDS = 2.0


class LeaseName(NamedTuple):
    """A Lease, and the manifest that grants access to it."""

    namespace: str
    name: str
    granted_by: str


def replica_name() -> str:
    """A name that is unique to this process, even on one host."""
    return f"{socket.gethostname()}-{secrets.token_hex(4)}"


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str = ""
    renew_time: str = ""


class _Lease(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


class LeaderElector:
    """Acquires and renews the Lease for one process. `monotonic` is a clock in seconds.

    The holder renews every third of `lease_seconds`, and gives up at two thirds without success;
    others take over after the whole.
    """

    def __init__(
        self,
        client: KubeClient,
        lease: LeaseName,
        identity: str,
        monotonic: Callable[[], float],
        lease_seconds: float,
    ) -> None:
        self._client, self._identity, self._monotonic = client, identity, monotonic
        self._lease = lease
        self._leases = _LEASES.format(namespace=lease.namespace)
        self._path = f"{self._leases}/{lease.name}"
        self._lease_seconds = lease_seconds
        self._observed_record: tuple[str, str] = ("", "")
        self._observed_at = monotonic()
        self._renewed_at = -lease_seconds
        self._forbidden_since: float | None = None
        self._last_warning = ""

    async def acquire(self) -> None:
        """Wait until this process holds the Lease."""
        waiting_for = ""
        while not await self.try_acquire_or_renew():
            if self._observed_record[0] != waiting_for:
                waiting_for = self._observed_record[0]
                _LOG.info("standing by; lease holder: %s", waiting_for or "unknown")
            await asyncio.sleep(min(self._lease_seconds / 3, _POLL_INTERVAL_SECONDS))

    async def renew(self) -> None:
        """Renew until that fails for too long, or another process holds the Lease."""
        while self._monotonic() - self._renewed_at < 2 * self._lease_seconds / 3:
            await asyncio.sleep(self._lease_seconds / 6)
            asked_at = self._monotonic()
            if asked_at - self._renewed_at >= self._lease_seconds / 3:
                await self.try_acquire_or_renew()
                if self._observed_record[0] not in ("", self._identity):
                    break
        _LOG.warning("lost the lease %s; stopping", self._lease.name)

    async def release(self) -> None:
        """Release the Lease if this process holds it; if that fails, it expires."""
        if self._monotonic() - self._renewed_at >= self._lease_seconds:
            return
        with suppress(ApiError, *CONNECTION_ERRORS):
            async with asyncio.timeout(_RELEASE_TIMEOUT_SECONDS):
                found = await self._read()
                if found is not None and found.spec.holder_identity == self._identity:
                    body = self._body(found.metadata.resource_version, holder="")
                    await self._client.replace(self._path, body)
        self._renewed_at = -self._lease_seconds

    async def try_acquire_or_renew(self) -> bool:
        """Acquire or renew the Lease; False when another process holds it, and for any error."""
        try:
            async with asyncio.timeout(self._lease_seconds / 6):
                return await self._acquire_or_renew()
        except ApiError as error:
            if error.status == FORBIDDEN:
                self._check_forbidden(error)
            if error.status != CONFLICT:
                self._warn_once(str(error))
        except CONNECTION_ERRORS as error:
            self._forbidden_since = None
            self._warn_once(str(error) or repr(error))
        return False

    def _warn_once(self, text: str) -> None:
        """Warn once for each reason: an outage may last for hours."""
        if text != self._last_warning:
            self._last_warning = text
            _LOG.warning("lease %s: %s", self._lease.name, text)

    def _check_forbidden(self, error: ApiError) -> None:
        """Raise BigFleetError once access was denied for as long as the lease lasts: before, the
        API server may just have started, and not have synced its RBAC yet.
        """
        now = self._monotonic()
        if self._forbidden_since is None:
            self._forbidden_since = now
        if now - self._forbidden_since >= self._lease_seconds:
            raise BigFleetError(f"{error}; {self._lease.granted_by} grants access") from None

    async def _acquire_or_renew(self) -> bool:
        asked_at = self._monotonic()
        found = await self._read()
        self._forbidden_since, self._last_warning = None, ""
        if found is None:
            await self._client.create(self._leases, self._body(None, self._identity))
        elif not self._is_free(found):
            return False
        else:
            body = self._body(found.metadata.resource_version, self._identity)
            await self._client.replace(self._path, body)
        self._observed_record, self._renewed_at = (self._identity, ""), asked_at
        return True

    async def _read(self) -> _Lease | None:
        try:
            return msgspec.json.decode(await self._client.get(self._path), type=_Lease)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def _is_free(self, found: _Lease) -> bool:
        seen = (found.spec.holder_identity, found.spec.renew_time)
        if seen[0] == self._identity:
            return True
        if seen != self._observed_record:
            self._observed_record, self._observed_at = seen, self._monotonic()
        return not seen[0] or self._monotonic() - self._observed_at >= self._lease_seconds

    def _body(self, version: str | None, holder: str) -> dict[str, Any]:
        metadata = {"name": self._lease.name, "namespace": self._lease.namespace}
        if version is not None:
            metadata["resourceVersion"] = version
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": max(1, int(self._lease_seconds)),
                "renewTime": rfc3339_micro(time.time()),
            },
        }


class Worker(Protocol):
    """The work of the leader."""

    def not_ready(self) -> str: ...
    async def run(self) -> None: ...


class LeaderElectedRunner:
    """Runs a worker while this process is the leader, and stands by otherwise.

    `start_worker` makes a new worker for each term.
    """

    def __init__(self, elector: LeaderElector, start_worker: Callable[[], Worker]) -> None:
        self._leadership, self._start_worker = elector, start_worker
        self._worker: Worker | None = None

    def not_ready(self) -> str:
        """Why the worker is not ready; "" if it is, or while standing by."""
        return self._worker.not_ready() if self._worker else ""

    async def run(self) -> None:
        """Run until cancelled, then release the Lease."""
        try:
            while True:
                metrics.controller_is_leader.set(0)
                await self._leadership.acquire()
                metrics.controller_is_leader.set(1)
                self._worker = self._start_worker()
                await run_until_first_completes(self._worker.run(), self._leadership.renew())
                self._worker = None
        finally:
            await self._leadership.release()
