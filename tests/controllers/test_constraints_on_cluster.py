"""Pods with every constraint, admitted by a real API server, as their shard receives it.

The API server fills in and merges a good deal: tolerations, priorities, ports, selectors.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bigfleet.api.need_codec import need_from_wire
from bigfleet.controllers.operator import role as operator
from bigfleet.controllers.pod_controller import role as pod_controller
from bigfleet.model.group import PLAIN, PodGroup
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.need import Need, Operator, Requirement, Spread, Toleration
from tests.support.clusters import (
    FakeShard,
    admin,
    fake_shard,
    get,
    namespace,
    pod,
    requests_path,
    role,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

_ZONE = "topology.kubernetes.io/zone"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_APP = {"matchLabels": {"app": "x"}}
# The CPU of each of these pods says which one it is.
_OURS = 7


def _expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def _node_terms(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    listed = [{"matchExpressions": term} for term in terms]
    return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": listed}}}


_PODS: dict[str, dict[str, Any]] = {
    "plain": {},
    "alternatives": {
        "nodeSelector": {"arch": "arm64"},
        "affinity": _node_terms([_expression("cores", "Gt", "15")], [_expression("gpu", "Exists")]),
    },
    "tolerant": {"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]},
    "spread": {
        "topologySpreadConstraints": [
            {
                "topologyKey": _ZONE,
                "maxSkew": 1,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": _APP,
                "matchLabelKeys": ["version"],
                "minDomains": 3,
                "nodeTaintsPolicy": "Honor",
            }
        ]
    },
    "soft": {
        "topologySpreadConstraints": [
            {
                "topologyKey": HOSTNAME_LABEL,
                "maxSkew": 1,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": _APP,
            }
        ]
    },
    "apart": {
        "affinity": {
            "podAntiAffinity": {
                _REQUIRED: [
                    {
                        "topologyKey": HOSTNAME_LABEL,
                        "labelSelector": _APP,
                        "matchLabelKeys": ["version"],
                    }
                ]
            }
        }
    },
    "together": {
        "affinity": {"podAffinity": {_REQUIRED: [{"topologyKey": _ZONE, "labelSelector": _APP}]}}
    },
    "ports": {"hostNetwork": True},
    "gated": {"schedulingGates": [{"name": "example.com/wait"}]},
}


def _bodies() -> list[dict[str, Any]]:
    bodies = []
    for number, (name, spec) in enumerate(_PODS.items(), start=1):
        body = pod(name, schedulerName="nobody", **spec)
        body["metadata"]["labels"]["version"] = "v1"
        container = body["spec"]["containers"][0]
        container["resources"] = {"requests": {"cpu": f"{number * 1000 + _OURS}m"}}
        if spec.get("hostNetwork"):
            container["ports"] = [{"containerPort": 9100}]
        bodies.append(body)
    return bodies


async def _needs(shard: FakeShard, *expected: str) -> dict[str, Need]:
    """Of the first roll-up with just these pods of ours, by name; other tests' may be in it too."""
    names = {number * 1000 + _OURS: name for number, name in enumerate(_PODS, start=1)}
    async with asyncio.timeout(90):
        while True:
            needs = [need_from_wire(m, "") for m in (await shard.rollups.get()).needs]
            sized = [(dict(size.amounts)["cpu"], need) for need in needs for size in need.sizes]
            found = {names[cpu]: need for cpu, need in sized if cpu in names}
            if set(found) == set(expected):
                return found


async def test_the_shard_receives_what_pods_request(kubeconfig: dict[str, Path]) -> None:
    controller = pod_controller.PodControllerConfig(
        kubeconfig["bigfleet-pod-controller"], observe_port=0
    )
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "every-constraint") as where,
        fake_shard() as (shard, address),
    ):
        settings = operator.OperatorConfig("c", [address], kubeconfig["bigfleet-operator"], 0)
        pods = f"/api/v1/namespaces/{where}/pods"
        for body in _bodies():
            await client.create(pods, body)
        async with (
            role(partial(pod_controller.run, controller)),
            role(partial(operator.run, settings)),
        ):
            needs = await _needs(shard, *(name for name in _PODS if name != "gated"))
            _check_where(needs)
            _check_neighbours(needs, where)
            await client.patch(f"{pods}/gated", {"spec": {"schedulingGates": []}})
            await _needs(shard, *_PODS)
            await client.delete(pods, {"gracePeriodSeconds": 0})

            async def gone() -> bool:
                return not (await get(client, pods))["items"]

            await eventually(gone, "the pods to be gone")
        await client.delete(requests_path(where))


def _check_where(needs: dict[str, Need]) -> None:
    plain = needs["plain"].profile
    assert plain.tolerations == (), "those that admission adds make no difference to a machine"
    found = needs["alternatives"].profile
    assert found.requirements == (Requirement("arch", Operator.IN, ("arm64",)),)
    assert found.alternatives == (
        (Requirement("cores", Operator.GREATER_THAN, ("15",)),),
        (Requirement("gpu", Operator.EXISTS),),
    )
    assert needs["tolerant"].profile.tolerations == (Toleration("gpu", True, "", "NoSchedule"),)
    ports = needs["ports"]
    assert ports.group == PodGroup('[{"hostPorts":[[9100,"TCP",""]]}]'), (
        "the host's network has its ports"
    )
    assert ports.profile.anti_affinity == (HOSTNAME_LABEL,)


def _check_neighbours(needs: dict[str, Need], where: str) -> None:
    own = '[["app","In",["x"]],["version","In",["v1"]]]'
    spread, anti_affinity_terms, together = needs["spread"], needs["apart"], needs["together"]
    assert spread.group == PodGroup(f'["{where}",{own},"{_ZONE}"]')
    assert spread.profile.spread == (Spread(_ZONE, 1, True, 3, honors_node_taints=True),)
    assert anti_affinity_terms.group == PodGroup(f'["{where}",{own},"{HOSTNAME_LABEL}"]')
    assert anti_affinity_terms.profile.anti_affinity == (HOSTNAME_LABEL,)
    assert together.group == PodGroup(f'["{where}","{_ZONE}",[["app","In",["x"]]]]')
    assert together.profile.same_key == _ZONE
    assert needs["soft"].group == PLAIN
    assert needs["soft"].profile.spread == (Spread(HOSTNAME_LABEL, 1, hard=False),)
