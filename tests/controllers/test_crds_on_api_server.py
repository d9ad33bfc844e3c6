"""An invalid object is rejected at admission, with the field named; a valid one is accepted."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from bigfleet.api.install import GROUP_VERSION, install
from bigfleet.kube.client import ApiError, KubeClient

pytestmark = pytest.mark.cluster

REQUESTS = f"{GROUP_VERSION}/namespaces/default/capacityrequests"
_NUMBERS = itertools.count()


def _request(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "CapacityRequest",
        "metadata": {"name": f"cr-{next(_NUMBERS)}"},
        "spec": {"resources": {"cpu": "1"}, "priority": 0, **spec},
    }


async def _refusal(kubeconfig: dict[str, Path], body: dict[str, Any]) -> str:
    async with await KubeClient.from_kubeconfig(kubeconfig["admin"]) as client:
        with pytest.raises(ApiError) as refused:
            await client.create(REQUESTS, body)
    assert refused.value.status == 422
    return refused.value.message


def _requirement(operator: str, *values: str) -> dict[str, Any]:
    return {"requirements": [{"key": "zone", "operator": operator, "values": list(values)}]}


def _term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def _spread(**more: Any) -> dict[str, Any]:
    term = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **more}
    return {"topologySpread": [term]}


@pytest.mark.parametrize("operator", ["Same", "gt", ""])
async def test_only_label_operators_of_node_selectors_are_accepted(
    kubeconfig: dict[str, Path], operator: str
) -> None:
    message = await _refusal(kubeconfig, _request(**_requirement(operator, "a")))
    assert "spec.requirements[0].operator" in message
    assert '"DoesNotExist"' in message


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        (_requirement("In"), "spec.requirements[0].values", "need values"),
        (_requirement("Exists", "a"), "spec.requirements[0].values", "take none"),
        (_requirement("Gt"), "spec.requirements[0].values", "need values"),
        (_requirement("Gt", "many"), "spec.requirements[0].values", "an integer"),
        (_requirement("Lt", "1", "2"), "spec.requirements[0].values", "need one value"),
        ({"nodeSelectorTerms": [{}]}, "spec.nodeSelectorTerms[0].matchExpressions", "Required"),
        (
            {"nodeSelectorTerms": [_term("zone", "Exists"), _term("zone", "In")]},
            "spec.nodeSelectorTerms[1].matchExpressions[0].values",
            "need values",
        ),
        (
            {"nodeSelectorTerms": [_term("z", "Exists")] * 33},
            "spec.nodeSelectorTerms",
            "at most 32",
        ),
        ({"tolerations": [{"value": "x"}]}, "spec.tolerations[0].operator", "must be Exists"),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]},
            "spec.tolerations[0].value",
            "takes no value",
        ),
        (
            {"tolerations": [{"key": "a", "effect": "Never"}]},
            "spec.tolerations[0].effect",
            "NoExec",
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Gt"}]},
            "spec.tolerations[0].operator",
            "Equal",
        ),
        ({"antiAffinity": {}}, "spec.antiAffinity.topologyKeys", "Required"),
        ({"antiAffinity": {"topologyKeys": []}}, "spec.antiAffinity.topologyKeys", "at least 1"),
        (
            {"antiAffinity": {"topologyKeys": ["a", "a"]}},
            "spec.antiAffinity.topologyKeys[1]",
            "Duplicate",
        ),
        (
            {
                "antiAffinity": {
                    "topologyKeys": ["a"],
                    "labelSelector": _term("app", "Gt", "1"),
                }
            },
            "spec.antiAffinity.labelSelector.matchExpressions[0].operator",
            "DoesNotExist",
        ),
        ({"hostPorts": [{"port": 0}]}, "spec.hostPorts[0].port", "greater than or equal to 1"),
        ({"hostPorts": [{"port": 80, "protocol": "ICMP"}]}, "spec.hostPorts[0].protocol", "SCTP"),
        ({"preemptionPolicy": "Always"}, "spec.preemptionPolicy", "Never"),
        (_spread(minDomains=0), "spec.topologySpread[0].minDomains", "greater than or equal to 1"),
        (
            _spread(minDomains=2, whenUnsatisfiable="ScheduleAnyway"),
            "spec.topologySpread[0].minDomains",
            "DoNotSchedule",
        ),
        (_spread(nodeTaintsPolicy="x"), "spec.topologySpread[0].nodeTaintsPolicy", "Honor"),
        ({"resources": {"cpu": "-1"}}, "spec.resources[cpu]", "is negative"),
        ({"resources": {"cpu": -1}}, "spec.resources[cpu]", "is negative"),
        ({"resources": {"cpu": "much"}}, "spec.resources.cpu", "should match"),
        ({"resources": {"cpu": "0", "memory": 0}}, "spec.resources", "requests nothing"),
        ({"resources": {}}, "spec.resources", "at least 1"),
        ({"resources": {"cpu": "1", "": "1"}}, "spec.resources", "without a name"),
        (
            {"requirements": [{"key": "", "operator": "Exists"}]},
            "spec.requirements[0].key",
            "at least 1",
        ),
        (
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": "", "operator": "Exists"}]}]},
            "spec.nodeSelectorTerms[0].matchExpressions[0].key",
            "at least 1",
        ),
        (_spread(topologyKey=""), "spec.topologySpread[0].topologyKey", "at least 1"),
        (
            _spread(labelSelector={"matchLabels": {"": "x"}}),
            "spec.topologySpread[0].labelSelector.matchLabels",
            "without a name",
        ),
        ({"coLocation": {"topologyKey": ""}}, "spec.coLocation.topologyKey", "at least 1"),
        (
            {"coLocation": {"topologyKey": "rack", "labelSelector": {"matchLabels": {"": ""}}}},
            "spec.coLocation.labelSelector.matchLabels",
            "without a name",
        ),
        ({"antiAffinity": {"topologyKeys": [""]}}, "spec.antiAffinity.topologyKeys[0]", "least 1"),
        (
            {"antiAffinity": {"topologyKeys": ["a"], "labelSelector": {"matchLabels": {"": ""}}}},
            "spec.antiAffinity.labelSelector.matchLabels",
            "without a name",
        ),
        ({"priority": 2**31}, "spec.priority", "2147483647"),
        ({"coLocation": {}}, "spec.coLocation.topologyKey", "Required"),
        (
            {"additional": True, "coLocation": {"topologyKey": "rack"}},
            "spec.additional",
            "not in coLocation",
        ),
        ({"interruptionPenalty": "-3"}, "spec.interruptionPenalty", "is negative"),
        ({"reclamationPenalty": "pinned"}, "spec.reclamationPenalty", "should match"),
        (
            {"topologySpread": [{"topologyKey": "z", "maxSkew": 0, "whenUnsatisfiable": "x"}]},
            "spec.topologySpread[0].whenUnsatisfiable",
            "ScheduleAnyway",
        ),
    ],
)
async def test_a_rejection_names_the_field(
    kubeconfig: dict[str, Path], spec: dict[str, Any], field: str, words: str
) -> None:
    message = await _refusal(kubeconfig, _request(**spec))
    assert field in message
    assert words in message


async def test_a_full_request_is_accepted_and_selectable_by_phase(
    kubeconfig: dict[str, Path],
) -> None:
    body = _request(
        resources={"cpu": 2, "memory": "1.5Gi", "nvidia.com/gpu": "1", "pods": "1"},
        priority=-5,
        requirements=[
            {"key": "zone", "operator": "In", "values": ["a", "b"]},
            {"key": "node.kubernetes.io/instance-type", "operator": "Exists"},
        ],
        coLocation={
            "topologyKey": "topology.bigfleet/rack",
            "labelSelector": {
                "matchLabels": {"app": "x"},
                "matchExpressions": [{"key": "gang", "operator": "In", "values": ["1"]}],
            },
        },
        **_spread(
            labelSelector={"matchLabels": {"app": "x"}},
            minDomains=3,
            nodeAffinityPolicy="Ignore",
            nodeTaintsPolicy="Honor",
        ),
        nodeSelectorTerms=[_term("zone", "In", "a"), _term("cores", "Gt", "-4")],
        tolerations=[{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}],
        antiAffinity={
            "topologyKeys": ["kubernetes.io/hostname"],
            "labelSelector": {"matchLabels": {"app": "x"}},
        },
        hostPorts=[{"port": 80}, {"port": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}],
        preemptionPolicy="Never",
        interruptionPenalty="0.25",
        reclamationPenalty=12,
    )
    async with await KubeClient.from_kubeconfig(kubeconfig["admin"]) as client:
        made = json.loads(await client.create(REQUESTS, body))
        assert made["spec"] == body["spec"], "a field that is not in the schema would be dropped"
        path = f"{REQUESTS}/{body['metadata']['name']}"
        try:
            await client.patch(f"{path}/status", {"status": {"phase": "Acknowledged"}})
            found = await client.get(REQUESTS, {"fieldSelector": "status.phase=Acknowledged"})
            assert body["metadata"]["name"].encode() in found
        finally:
            await client.delete(path)  # it would count in others' roll-ups


async def test_installing_again_changes_nothing(kubeconfig: dict[str, Path]) -> None:
    async with await KubeClient.from_kubeconfig(kubeconfig["admin"]) as client:
        await install(client)
