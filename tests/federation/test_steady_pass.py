"""A thousand federated HPAs over ten members: what a pass costs when there is nothing to do.

The members and the federation's API server are played; controller, rules and decoding are real.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from bigfleet.federation.autoscaler.controller import AutoscalerController
from bigfleet.federation.host import Host
from bigfleet.federation.members.link import MemberLink
from bigfleet.federation.members.objects import Hpa, MemberWorkload, Name
from bigfleet.federation.members.registry import Registry
from bigfleet.federation.members.state import Listeners, MemberState
from bigfleet.federation.objects import AUTOSCALERS, FINALIZER, Autoscaler, Key, Workload

AUTOSCALED, MEMBERS = 1000, 10
LIMIT_CPU_SECONDS = 5.0
_CONDITIONS = [
    {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    for kind in ("AbleToScale", "ScalingActive")
]
_CPU = {"type": "Resource", "resource": {"name": "cpu"}}


class _Api:
    """The federation's API server: keeps what is patched, and counts requests."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.requests = 0
        self.versions = itertools.count(1)

    def put(self, path: str, body: dict[str, Any]) -> bytes:
        body["metadata"]["resourceVersion"] = str(next(self.versions))
        self.objects[path] = body
        return json.dumps(body).encode()

    async def patch(self, path: str, body: Mapping[str, Any], *_: Any) -> bytes:
        self.requests += 1
        path = path.removesuffix("/status")
        found = self.objects[path]
        for part, values in body.items():
            found[part] = {**found.get(part, {}), **values}
        return self.put(path, found)

    async def create(self, *_: Any) -> bytes:
        self.requests += 1
        return b"{}"


class _Link(MemberLink):
    """A member that takes every HPA and reports that all is well in it."""

    def __init__(self, state: MemberState, api: _Api) -> None:
        super().__init__(state, {})
        self._api = api

    async def apply_hpa(self, _: Name, body: Mapping[str, Any]) -> None:
        self._api.requests += 1
        target, current = {"averageUtilization": 60}, {"averageUtilization": 50}
        made = {
            "metadata": {
                **body["metadata"],
                "resourceVersion": str(next(self._api.versions)),
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {
                **body["spec"],
                "metrics": [{**_CPU, "resource": {"name": "cpu", "target": target}}],
            },
            "status": {
                "currentReplicas": 2,
                "desiredReplicas": 2,
                "conditions": _CONDITIONS,
                "currentMetrics": [{**_CPU, "resource": {"name": "cpu", "current": current}}],
            },
        }
        self.state.put_hpa(msgspec.json.decode(json.dumps(made), type=Hpa))


def _autoscaler(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "n", "uid": name, "finalizers": [FINALIZER]},
        "spec": {
            "scaleTargetRef": {"kind": "FederatedDeployment", "name": name},
            "minReplicas": 20,
            "maxReplicas": 100,
        },
    }


def _target(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"template": {"spec": {"selector": {}, "template": {}}}}
    return {"metadata": {"name": name, "namespace": "n", "uid": name}, "spec": spec}


def _fleet(api: _Api, autoscaled: int, members: int) -> tuple[Host, Registry]:
    host = Host(api)  # type: ignore[arg-type]
    for plural in (AUTOSCALERS, "federateddeployments", "federatedreplicasets"):
        host._listed[plural].set()
    for number in range(autoscaled):
        name = f"web-{number}"
        key, target = Key(AUTOSCALERS, "n", name), Key("federateddeployments", "n", name)
        content = api.put(key.path, _autoscaler(name))
        host.autoscalers[key] = msgspec.json.decode(content, type=Autoscaler)
        content = api.put(target.path, _target(name))
        host.workloads[target] = msgspec.json.decode(content, type=Workload)
    listeners = Listeners(lambda _: None, lambda _: None, lambda: None)
    registry = Registry(listeners)
    registry.listed.set()
    for number in range(members):
        state = MemberState(f"m{number}", {}, listeners)
        state.found()
        registry.links[state.name] = _Link(state, api)
        for key in host.workloads:
            part = {"metadata": {"name": key.name, "namespace": "n"}, "spec": {"replicas": 2}}
            state.put_workload("Deployment", msgspec.convert(part, MemberWorkload))
    return host, registry


@pytest.mark.timeout(300)
async def test_a_steady_pass_over_a_thousand_is_quick_and_asks_nobody() -> None:
    """At most five seconds of one core, and not one request: what changes is heard of."""
    api = _Api()
    host, registry = _fleet(api, AUTOSCALED, MEMBERS)
    controller = AutoscalerController(host, registry, time.time, 1.0)
    for _ in range(2):  # the split, and what its own status makes of it
        for key in list(host.autoscalers):
            await controller.look(key)
    assert all(len(link.state.hpas) == AUTOSCALED for link in registry.links.values())
    before, started = api.requests, time.process_time()
    for key in list(host.autoscalers):
        await controller.look(key)
    took = time.process_time() - started
    assert api.requests == before
    assert took <= LIMIT_CPU_SECONDS, f"{took:.1f} s"
    print(f"a steady pass over {AUTOSCALED} x {MEMBERS} took {took:.2f} s of one core")
