"""A federation whose API server and members are played: what is written is kept and counted.

Controller, rules, decoding and what is put into each object are real.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from bigfleet.fedhpa.autoscaler.controller import AutoscalerController
from bigfleet.fedhpa.host_cluster import HostCluster
from bigfleet.fedhpa.members.link import MemberLink
from bigfleet.fedhpa.members.objects import Hpa, MemberWorkload, NamespacedName
from bigfleet.fedhpa.members.registry import MemberRegistry
from bigfleet.fedhpa.members.state import Listeners, MemberState
from bigfleet.fedhpa.objects import AUTOSCALERS, FINALIZER, Autoscaler, ObjectKey, Workload
from bigfleet.fedhpa.shares import Share
from bigfleet.model.errors import Unavailable

_CONDITIONS = ("AbleToScale", "ScalingActive")
_CPU = {"type": "Resource", "resource": {"name": "cpu"}}


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch, as far as these tests need it: null removes, and one level is merged."""
    made = {**old, **new}
    if "annotations" in new:
        marks = {**(old.get("annotations") or {}), **new["annotations"]}
        made["annotations"] = {key: value for key, value in marks.items() if value is not None}
    return made


class Died(BaseException):
    """The controller's process is gone."""


class Api:
    """Everything that outlives the controller: federated objects, members' HPAs.

    Before (or after, if `does_it`) request number `dies_at` the controller dies.
    """

    def __init__(self, members: list[str]) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.hpas: dict[str, dict[NamespacedName, Hpa]] = {name: {} for name in members}
        self.replicas: dict[str, tuple[int, int, bool]] = dict.fromkeys(members, (2, 2, False))
        self.rejections: dict[str, Exception] = {}
        self.requests = 0
        self.now = 1_800_000_000.0
        self.dies_at: int | None = None
        self.does_it = False
        self.on_share: Callable[[str, Share | None], None] = lambda _, __: None
        self._versions = itertools.count(1)

    def request(self, do: Callable[[], Any]) -> Any:
        """One request, as far as it gets."""
        self.requests += 1
        if self.requests == self.dies_at:
            if self.does_it:
                do()
            raise Died
        return do()

    def version(self) -> str:
        return str(next(self._versions))

    def put(self, path: str, body: dict[str, Any]) -> bytes:
        body["metadata"]["resourceVersion"] = self.version()
        self.objects[path] = body
        return json.dumps(body).encode()

    async def patch(self, path: str, body: Mapping[str, Any], *_: Any) -> bytes:
        path = path.removesuffix("/status").removesuffix("/scale")

        def do() -> bytes:
            found = dict(self.objects[path])
            for part, values in body.items():
                found[part] = _merged(found.get(part, {}), values)
            return self.put(path, found)

        content: bytes = self.request(do)
        return content

    async def create(self, *_: Any) -> bytes:
        return bytes(self.request(lambda: b"{}"))

    def shares(self) -> dict[str, Share]:
        return {name: hpa.share for name, hpas in self.hpas.items() for hpa in hpas.values()}

    def hpa(self, member: str, body: Mapping[str, Any]) -> Hpa:
        """The HPA as the member would show it, its controller having looked at it."""
        current, desired, limited = self.replicas[member]
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            for kind in _CONDITIONS
        ]
        if limited:
            conditions.append(
                {"type": "ScalingLimited", "status": "True", "reason": "TooManyReplicas"}
            )
        target = {"name": "cpu", "target": {"averageUtilization": 60}}
        seen = {"name": "cpu", "current": {"averageUtilization": 120 if limited else 50}}
        made = {
            "metadata": {
                **body["metadata"],
                "resourceVersion": self.version(),
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {**body["spec"], "metrics": [{**_CPU, "resource": target}]},
            "status": {
                "currentReplicas": current,
                "desiredReplicas": desired,
                "conditions": conditions,
                "currentMetrics": [{**_CPU, "resource": seen}],
            },
        }
        return msgspec.json.decode(json.dumps(made), type=Hpa)


class PlayedLink(MemberLink):
    """A member that accepts every HPA."""

    def __init__(self, state: MemberState, api: Api) -> None:
        super().__init__(state, None)
        self._api = api

    async def check_managed(self, *_: Any) -> None:
        if refusal := self._api.rejections.get(self.state.name):
            raise refusal

    async def dry_run_hpa(self, *_: Any) -> None:
        await self.check_managed()

    async def apply_hpa(self, name: NamespacedName, body: Mapping[str, Any]) -> None:
        member = self.state.name
        if not self.state.reachable:
            raise Unavailable(f"{member} is cut off")

        def do() -> None:
            hpa = self._api.hpas[member][name] = self._api.hpa(member, body)
            self._api.on_share(member, hpa.share)

        self._api.request(do)
        self.state.put_hpa(self._api.hpas[member][name])

    async def delete_hpa(self, name: NamespacedName) -> None:
        if not self.state.reachable:
            raise Unavailable(f"{self.state.name} is cut off")

        def do() -> None:
            self._api.hpas[self.state.name].pop(name, None)
            self._api.on_share(self.state.name, None)

        self._api.request(do)
        self.state.drop_hpa(name)


def add(api: Api, name: str, minimum: int, maximum: int) -> None:
    """A federated HPA of that name, and its target."""
    ref = {"kind": "FederatedDeployment", "name": name}
    spec = {"scaleTargetRef": ref, "minReplicas": minimum, "maxReplicas": maximum}
    metadata = {"name": name, "namespace": "n", "uid": name}
    path = ObjectKey(AUTOSCALERS, "n", name).path
    api.put(path, {"metadata": {**metadata, "finalizers": [FINALIZER]}, "spec": spec})
    template: dict[str, Any] = {"spec": {"selector": {}, "template": {}}}
    path = ObjectKey("federateddeployments", "n", name).path
    api.put(path, {"metadata": metadata, "spec": {"template": template}})


def controller(
    api: Api, cut_off: str = ""
) -> tuple[AutoscalerController, HostCluster, MemberRegistry]:
    """A new process, without memory."""
    host = HostCluster(api)  # type: ignore[arg-type]
    for path, body in api.objects.items():
        plural, name = path.split("/")[-2:]
        key, content = ObjectKey(plural, "n", name), json.dumps(body)
        if plural == AUTOSCALERS:
            host.autoscalers[key] = msgspec.json.decode(content, type=Autoscaler)
        else:
            host.workloads[key] = msgspec.json.decode(content, type=Workload)
    for event in host._listed.values():
        event.set()
    listeners = Listeners(lambda _: None, lambda _: None, lambda: None)
    registry = MemberRegistry(listeners)
    registry.listed.set()
    for member, hpas in api.hpas.items():
        state = MemberState(member, {}, listeners)
        registry.links[member] = PlayedLink(state, api)
        if member == cut_off:
            state.mark_unreachable("is cut off")
            continue
        state.mark_reachable()
        for hpa in hpas.values():
            state.put_hpa(hpa)
        for key in host.workloads:
            part = {"metadata": {"name": key.name, "namespace": "n"}, "spec": {"replicas": 2}}
            state.put_workload("Deployment", msgspec.convert(part, MemberWorkload))
    return AutoscalerController(host, registry, lambda: api.now, 1.0), host, registry
