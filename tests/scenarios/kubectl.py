"""What people do with kubectl, by the same requests."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from bigfleet.kube.client import (
    APPLY_PATCH,
    CONFLICT,
    CONNECTION_ERRORS,
    NOT_FOUND,
    STRATEGIC_PATCH,
    TOO_MANY_REQUESTS,
    ApiError,
    KubeClient,
    is_transient,
)
from tests.scenarios import objects
from tests.scenarios.history import History, ObservedNode, ObservedPod
from tests.scenarios.records import Edit, OneNode, Resize, Scale, SomePods, Step, Taint
from tests.scenarios.resources import Resources, UnknownKind
from tests.scenarios.timing import POLL_INTERVAL_SECONDS, STEP_TIMEOUT_SECONDS

_STRICT = {"fieldValidation": "Strict"}
_APPLY = {"fieldManager": "kubectl", "force": "true", **_STRICT}
_BACKGROUND = {"propagationPolicy": "Background"}
# A namespace's service account, a priority class and so on take effect a moment after they were
# written; until then what needs them is forbidden.
_NOT_YET = (403, NOT_FOUND, CONFLICT)
_RETRY_INTERVAL_SECONDS = 0.2


class StepError(Exception):
    """A step could not be done: nothing is known about the autoscaler."""


class Kubectl:
    """Does the steps of one scenario, and notes in its history what is done by hand."""

    def __init__(self, client: KubeClient, resources: Resources, history: History) -> None:
        self._client, self._resources, self.history = client, resources, history

    async def do(self, step: Step) -> None:
        """Do one step that is no expectation. StepError where the cluster does not let us."""
        (verb,) = step.verbs
        value = getattr(step, verb)
        self.history.note(f"{verb} {_shown(value)}")
        try:
            async with asyncio.timeout(STEP_TIMEOUT_SECONDS):
                await getattr(self, f"_{verb}")(value)
        except TimeoutError:
            raise StepError(
                f"{verb} {_shown(value)}: not done in {STEP_TIMEOUT_SECONDS:g} s"
            ) from None
        except (ApiError, UnknownKind, *CONNECTION_ERRORS) as error:
            raise StepError(f"{verb} {_shown(value)}: {error}") from None

    async def get(self, reference: str) -> dict[str, Any]:
        """kubectl get of one object."""
        path = self._resources.path_of(reference)
        found: dict[str, Any] = msgspec.json.decode(await self._client.get(path))
        return found

    async def _apply(self, bodies: tuple[dict[str, Any], ...]) -> None:
        for body in bodies:
            await self.apply(body)

    async def apply(self, body: Mapping[str, Any]) -> None:
        """kubectl apply --server-side of one object."""
        namespace = objects.namespace_of(body)
        if namespace:
            body = {**body, "metadata": {**body["metadata"], "namespace": namespace}}
        path = self._resources.path(body["kind"], namespace, body["metadata"]["name"])
        await _persistently(partial(self._client.patch, path, body, APPLY_PATCH, _APPLY), _NOT_YET)

    async def _scale(self, scale: Scale) -> None:
        path = f"{self._resources.path_of(scale.object)}/scale"
        await self._client.patch(path, {"spec": {"replicas": scale.replicas}})

    async def _edit(self, edit: Edit) -> None:
        path = self._resources.path_of(edit.object)
        await self._client.patch(path, edit.patch, STRATEGIC_PATCH, _STRICT)

    async def _resize(self, resize: Resize) -> None:
        """With the kubelet's part, which kwok does not play: to report what containers have."""
        for pod in self._running(SomePods(pods=resize.pods)):
            await _until(partial(_runs, pod))
            first = pod.latest["spec"]["containers"][0]
            new = {**first.get("resources", {}), "requests": resize.requests}
            patch = {"spec": {"containers": [{"name": first["name"], "resources": new}]}}
            await self._report_resources(pod, first.get("resources", {}))
            await self._client.patch(f"{_path(pod)}/resize", patch, STRATEGIC_PATCH, _STRICT)
            await self._report_resources(pod, new)

    async def _report_resources(self, pod: ObservedPod, resources: Mapping[str, Any]) -> None:
        reported = {"resources": resources, "allocatedResources": resources.get("requests", {})}
        first, *others = pod.latest["status"]["containerStatuses"]
        patch = {"status": {"containerStatuses": [{**first, **reported}, *others]}}
        await self._client.patch(f"{_path(pod)}/status", patch, STRATEGIC_PATCH)

    async def _delete(self, names: tuple[str, ...]) -> None:
        for name in names:
            await self._client.delete(self._resources.path_of(name), _BACKGROUND)

    async def _delete_pods(self, some: SomePods) -> None:
        for pod in self._running(some):
            await self._client.delete(_path(pod), _BACKGROUND)
            await _until(partial(_left, pod))

    async def _delete_node(self, which: OneNode) -> None:
        node = self._node(which)
        self.history.mark_by_hand(node)
        await self._client.delete(_node_path(node), _BACKGROUND)
        await _until(lambda: node.gone_at is not None)

    async def _finish(self, some: SomePods) -> None:
        """The kubelet's part: the containers have ended with exit code 0."""
        for pod in self._running(some):
            await _until(partial(_runs, pod))
            await self._client.patch(f"{_path(pod)}/status", _ended(pod), STRATEGIC_PATCH)
            await _until(partial(_left, pod))

    async def _roll_out(self, name: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        annotations = {"kubectl.kubernetes.io/restartedAt": now}
        patch = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
        await self._client.patch(self._resources.path_of(name), patch, STRATEGIC_PATCH)

    async def _cordon(self, which: OneNode) -> None:
        await self._set_unschedulable(self._node(which), True)

    async def _uncordon(self, which: OneNode) -> None:
        await self._set_unschedulable(self._node(which), None)

    async def _drain(self, which: OneNode) -> None:
        """With --ignore-daemonsets and --delete-emptydir-data, which people always add."""
        node = self._node(which)
        before = [pod for pod in self.history.pods.values() if pod.live and pod.node == node.name]
        await self._set_unschedulable(node, True)
        while pods := await self._to_drain(node):
            for pod in pods:
                await self._evict(pod)
            await asyncio.sleep(_RETRY_INTERVAL_SECONDS)
        await _until(lambda: not any(pod.live for pod in before if not pod.of_a_daemon_set))

    async def _taint(self, taint: Taint) -> None:
        node = self._node(taint.node)
        name, effect = taint.taint.rsplit(":", 1)
        key, _, value = name.partition("=")
        if effect == "NoExecute":
            self.history.mark_by_hand(node)

        async def once() -> None:
            body = msgspec.json.decode(await self._client.get(_node_path(node)))
            taints = [*(body["spec"].get("taints") or ()), {"key": key, "effect": effect}]
            if value:
                taints[-1]["value"] = value
            metadata = {"resourceVersion": body["metadata"]["resourceVersion"]}
            patch = {"metadata": metadata, "spec": {"taints": taints}}
            await self._client.patch(_node_path(node), patch)

        await _persistently(once, (CONFLICT,))
        await _until(lambda: any(t["key"] == key for t in node.latest["spec"].get("taints") or ()))

    async def _name_node(self, which: OneNode) -> None:
        self._node(which)

    async def _set_unschedulable(self, node: ObservedNode, value: bool | None) -> None:
        await self._client.patch(_node_path(node), {"spec": {"unschedulable": value}})
        await _until(lambda: node.cordoned == bool(value))

    async def _to_drain(self, node: ObservedNode) -> list[dict[str, Any]]:
        query = {"fieldSelector": f"spec.nodeName={node.name}"}
        listed = msgspec.json.decode(await self._client.get("/api/v1/pods", query))["items"] or ()
        observed = [ObservedPod(pod, self.history.now()) for pod in listed]
        return [each.latest for each in observed if not each.of_a_daemon_set and not each.has_ended]

    async def _evict(self, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        if pod_seen := self.history.pods.get(metadata["uid"]):
            pod_seen.by_hand = True
        name = {"name": metadata["name"], "namespace": metadata["namespace"]}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": name}
        path = f"/api/v1/namespaces/{name['namespace']}/pods/{name['name']}/eviction"
        try:
            await self._client.create(path, eviction)
        except ApiError as error:
            if error.status not in (NOT_FOUND, CONFLICT, TOO_MANY_REQUESTS):
                raise

    def _running(self, some: SomePods) -> list[ObservedPod]:
        pods = self.history.bound(some.pods)
        wanted = len(pods) if some.count is None else some.count
        if not pods or wanted > len(pods):
            raise StepError(f"{len(pods)} pods {some.pods} run, and {wanted or 'some'} are meant")
        return pods[:wanted]

    def _node(self, which: OneNode) -> ObservedNode:
        selector = which.running or which.fewest
        if selector is None:
            return self.history.named[which.named or ""]
        counts = Counter(pod.node for pod in self.history.bound(selector))
        occupied = [node for node in self.history.present() if counts[node.name]]
        if not occupied:
            raise StepError(f"no Node runs a pod {selector}")
        sign = -1 if which.running else 1
        node = min(occupied, key=lambda each: (sign * counts[each.name], each.name))
        if which.named:
            self.history.named[which.named] = node
            self.history.note(f"{which.named} is Node {node.name}, {counts[node.name]} such pods")
        return node


def _runs(pod: ObservedPod) -> bool:
    return pod.phase == "Running"


def _left(pod: ObservedPod) -> bool:
    return not pod.live


async def _until(seen: Callable[[], bool]) -> None:
    """Until the history shows what was done: what is expected next is judged by it."""
    while not seen():  # noqa: ASYNC110  the watch decides
        await asyncio.sleep(POLL_INTERVAL_SECONDS)


async def _persistently(request: Callable[[], Awaitable[Any]], passing: tuple[int, ...]) -> None:
    """Until it is accepted; the refusal itself when that takes too long."""
    ends = time.monotonic() + STEP_TIMEOUT_SECONDS / 2
    while True:
        try:
            await request()
        except (ApiError, *CONNECTION_ERRORS) as error:
            may_pass = is_transient(error) or getattr(error, "status", 0) in passing
            if not may_pass or time.monotonic() > ends:
                raise
        else:
            return
        await asyncio.sleep(_RETRY_INTERVAL_SECONDS)


def _ended(pod: ObservedPod) -> dict[str, Any]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ended = {"exitCode": 0, "reason": "Completed", "finishedAt": now}
    statuses = [
        {"name": each["name"], "ready": False, "started": False, "state": {"terminated": ended}}
        for each in pod.latest["spec"]["containers"]
    ]
    condition = {"status": "False", "reason": "PodCompleted", "lastTransitionTime": now}
    conditions = [{"type": kind, **condition} for kind in ("Ready", "ContainersReady")]
    return {
        "status": {
            "phase": "Succeeded",
            "conditions": conditions,
            "containerStatuses": statuses,
        }
    }


def _path(pod: ObservedPod) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


def _node_path(node: ObservedNode) -> str:
    return f"/api/v1/nodes/{node.name}"


def _shown(value: Any) -> str:
    """A step as one short line."""
    if isinstance(value, tuple):
        named = [objects.reference_of(v) if isinstance(v, dict) else str(v) for v in value]
        return ", ".join(named)
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.asdict(value).items()
        return " ".join(f"{name}={_shown(v)}" for name, v in fields if v is not None)
    return str(value)
