"""The connection to one member: watches, health probes, and writes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec

from bigfleet.fedhpa.members.objects import (
    AUTOSCALER_LABEL,
    HPAS,
    MEMBER_PLURALS,
    POD_LABEL,
    SPEC_HASH,
    WORKLOAD_LABEL,
    Hpa,
    MemberWorkload,
    NamespacedName,
    Pod,
    WorkloadName,
    hpa_path,
)
from bigfleet.fedhpa.members.state import MemberState
from bigfleet.fedhpa.objects import FIELD_MANAGER, Metadata
from bigfleet.kube.client import (
    APPLY_PATCH,
    CONFLICT,
    CONNECTION_ERRORS,
    NOT_FOUND,
    ApiError,
    InlineAccess,
    KubeClient,
)
from bigfleet.kube.watch import Changed, Listed, Watch
from bigfleet.model.errors import InvalidInput, Unavailable
from bigfleet.observe import metrics
from bigfleet.tasks import run_until_first_completes

_LOG = logging.getLogger(__name__)
_APPLY = {"fieldManager": FIELD_MANAGER, "force": "true"}
_PROBE_SECONDS, _PROBE_DEADLINE_SECONDS, _FAILURES_ALLOWED = 3.0, 3.0, 1
_WRITE_DEADLINE_SECONDS = 10.0

T = TypeVar("T")


class NotManaged(ApiError):
    """An object of that name exists in the member, and is not managed by the federation."""

    def __init__(self, what: str, label: str) -> None:
        hint = "exists and is not managed by the federation; delete it, or adopt it"
        super().__init__(what, CONFLICT, "NotManaged", f"{hint} with the label {label}")


class _LabelledObject(msgspec.Struct):
    metadata: Metadata


class MemberLink:
    """One member of the federation; `run` keeps `state` up to date."""

    def __init__(self, state: MemberState, access: InlineAccess | None, rejected: str = "") -> None:
        """Without `access` the member is unreachable; `rejected` says why its kubeconfig is."""
        self.state, self.access, self.rejected = state, access, rejected
        self._client: KubeClient | None = None
        self._resync = asyncio.Event()

    async def run(self) -> None:
        """Watch the member until cancelled, reconnecting after any error."""
        try:
            client = None if self.access is None else KubeClient.with_access(self.access)
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            client, self.rejected = None, f"a certificate or key in it cannot be used: {error}"
        if client is None:
            self._mark_unreachable(f"its kubeconfig is rejected: {self.rejected}")
            return
        async with client:
            while True:
                self._mark_unreachable(await self._followed(client))
                await asyncio.sleep(_PROBE_SECONDS)

    async def _followed(self, client: KubeClient) -> str:
        """Watch the member until an error; return it."""
        try:
            await self._wait_for_answer(client)
            self._client = client
            return await self._follow(client)
        except (ApiError, *CONNECTION_ERRORS) as error:
            return f"does not answer: {str(error) or repr(error)}"
        except InvalidInput as error:
            return f"its objects are unusable: {error}"
        except Exception as error:  # noqa: BLE001 - unexpected errors are reported
            metrics.internal_errors.inc()
            name = self.state.name
            _LOG.exception("unexpected error for member %s; this is a bug", name)
            return f"its objects are unusable: {error!r}"
        finally:
            self._client = None

    def _mark_unreachable(self, why: str) -> None:
        self.state.mark_unreachable(why)
        _LOG.warning("member %s: %s", self.state.name, why)

    def resync(self) -> None:
        """Reconnect and relist, after a write without an answer."""
        self._resync.set()

    async def _wait_for_answer(self, client: KubeClient) -> None:
        while why := await _probe(client):
            self.state.mark_unreachable(why)
            await asyncio.sleep(_PROBE_SECONDS)

    async def _follow(self, client: KubeClient) -> str:
        """Run all watches; return why they ended."""
        self._resync.clear()
        ended: list[str] = []
        state = self.state
        hpas = Watch(client, HPAS, Hpa, {"labelSelector": AUTOSCALER_LABEL})
        deployments, replica_sets = (
            Watch(
                client, f"/apis/apps/v1/{plural}", MemberWorkload, {"labelSelector": WORKLOAD_LABEL}
            )
            for plural in (MEMBER_PLURALS["Deployment"], MEMBER_PLURALS["ReplicaSet"])
        )
        unscheduled = {"labelSelector": POD_LABEL, "fieldSelector": "spec.nodeName="}
        pods = Watch(client, "/api/v1/pods", Pod, unscheduled)
        watches = (hpas, deployments, replica_sets, pods)
        listed = [asyncio.Event() for _ in watches]

        async def announce() -> None:
            for each in listed:
                await each.wait()
            state.mark_reachable()
            await self._resync.wait()
            ended.append("a write got no answer")

        await run_until_first_completes(
            announce(),
            self._probe_on(client, watches, ended),
            self._follow_hpas(hpas, listed[0]),
            self._follow_workloads(deployments, "Deployment", listed[1]),
            self._follow_workloads(replica_sets, "ReplicaSet", listed[2]),
            self._follow_pods(pods, listed[3]),
        )
        return ended[0]

    async def _probe_on(
        self, client: KubeClient, watches: Sequence[Watch[Any]], ended: list[str]
    ) -> None:
        """Until the API server, or a watch, has failed for several probes."""
        failures = 0
        while True:
            await asyncio.sleep(_PROBE_SECONDS)
            # An API server may be ready, and refuse the federation its objects.
            why = await _probe(client) or next(
                (f"cannot be watched: {w.stats.failing}" for w in watches if w.stats.failing), ""
            )
            failures = failures + 1 if why else 0
            if failures > _FAILURES_ALLOWED:
                ended.append(why)
                return

    async def _follow_hpas(self, watch: Watch[Hpa], listed: asyncio.Event) -> None:
        async for change in _changes(watch):
            if isinstance(change, Listed):
                self.state.replace_hpas(change.items)
                listed.set()
            elif change.deleted:
                self.state.drop_hpa(change.item.name, change.item.metadata.uid)
            else:
                self.state.put_hpa(change.item)

    async def _follow_workloads(
        self, watch: Watch[MemberWorkload], kind: str, listed: asyncio.Event
    ) -> None:
        async for change in _changes(watch):
            if isinstance(change, Listed):
                self.state.replace_workloads(kind, change.items)
                listed.set()
            elif change.deleted:
                metadata = change.item.metadata
                name = WorkloadName(kind, metadata.namespace, metadata.name)
                self.state.drop_workload(name, metadata.uid)
            else:
                self.state.put_workload(kind, change.item)

    async def _follow_pods(self, watch: Watch[Pod], listed: asyncio.Event) -> None:
        async for change in _changes(watch):
            if isinstance(change, Listed):
                self.state.replace_pods(change.items)
                listed.set()
            else:
                self.state.observe_pod(change.item, scheduled=change.deleted)

    async def check_managed(self, name: NamespacedName, target: WorkloadName) -> None:
        """NotManaged when an HPA of that name, or its target, is not managed by the federation."""
        if name not in self.state.hpas:
            what = f"HorizontalPodAutoscaler {name.namespace}/{name.name}"
            await self._check_label(what, hpa_path(name), AUTOSCALER_LABEL, "true")
        if target not in self.state.workloads:
            await self._check_workload_managed(target)

    async def _check_workload_managed(self, name: WorkloadName) -> None:
        what = f"{name.kind} {name.namespace}/{name.name}"
        await self._check_label(what, name.path, WORKLOAD_LABEL, name.label)

    async def _check_label(self, what: str, path: str, label: str, value: str) -> None:
        try:
            content = await self._write(lambda c: c.get(path))
        except ApiError as error:
            if error.status == NOT_FOUND:
                return
            raise
        found = msgspec.json.decode(content, type=_LabelledObject).metadata
        if label not in found.labels and SPEC_HASH not in found.annotations:
            raise NotManaged(what, f"{label}={value}")

    async def dry_run_hpa(
        self, name: NamespacedName, target: WorkloadName, body: Mapping[str, Any]
    ) -> None:
        """Apply the HPA as a dry run, for its errors."""
        await self.check_managed(name, target)
        query = {**_APPLY, "dryRun": "All"}
        await self._write(lambda c: c.patch(hpa_path(name), body, APPLY_PATCH, query))

    async def apply_hpa(self, name: NamespacedName, body: Mapping[str, Any]) -> None:
        """Apply the HPA; Unavailable when the outcome is unknown."""
        content = await self._write(lambda c: c.patch(hpa_path(name), body, APPLY_PATCH, _APPLY))
        self.state.put_hpa(msgspec.json.decode(content, type=Hpa))

    async def delete_hpa(self, name: NamespacedName) -> None:
        """Delete the HPA, if it exists."""
        await self._delete(hpa_path(name))
        self.state.drop_hpa(name)

    async def apply_workload(self, name: WorkloadName, body: Mapping[str, Any]) -> None:
        """Apply the workload without its replicas.

        NotManaged when one of that name is not managed by the federation.
        """
        if name not in self.state.workloads:
            await self._check_workload_managed(name)
        content = await self._write(lambda c: c.patch(name.path, body, APPLY_PATCH, _APPLY))
        self.state.put_workload(name.kind, msgspec.json.decode(content, type=MemberWorkload))

    async def scale(self, name: WorkloadName, replicas: int) -> None:
        """Set the workload's replicas."""
        body = {"spec": {"replicas": replicas}}
        await self._write(lambda c: c.patch(f"{name.path}/scale", body))

    async def delete_workload(self, name: WorkloadName) -> None:
        """Delete the workload and its Pods, if it exists."""
        await self._delete(name.path, {"propagationPolicy": "Background"})
        self.state.drop_workload(name)

    async def _delete(self, path: str, options: Any = None) -> None:
        try:
            await self._write(lambda c: c.delete(path, options))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    async def _write(self, request: Callable[[KubeClient], Any]) -> bytes:
        client = self._client
        if client is None or not self.state.reachable:
            raise Unavailable(f"member {self.state.name}: {self.state.unreachable_reason}")
        try:
            async with asyncio.timeout(_WRITE_DEADLINE_SECONDS):
                content: bytes = await request(client)
                return content
        except CONNECTION_ERRORS as error:
            why = f"a write got no answer: {str(error) or repr(error)}"
            self.state.mark_unreachable(why)
            self.resync()
            raise Unavailable(f"member {self.state.name}: {why}") from error


async def _changes(watch: Watch[T]) -> AsyncGenerator[Listed[T] | Changed[T], None]:
    async with aclosing(watch.follow()) as changes:
        async for change in changes:
            yield change


async def _probe(client: KubeClient) -> str:
    """Why the member's API server is not ready; "" when it is."""
    try:
        async with asyncio.timeout(_PROBE_DEADLINE_SECONDS):
            await client.get("/readyz")
    except (ApiError, *CONNECTION_ERRORS) as error:
        return f"does not answer: {str(error) or repr(error)}"
    return ""
