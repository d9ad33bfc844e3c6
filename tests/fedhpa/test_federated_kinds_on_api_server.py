"""An invalid federated object is rejected with the field named; a valid one is accepted."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.install_fedhpa import install_fedhpa
from bigfleet.kube.client import ApiError, KubeClient

pytestmark = pytest.mark.cluster

AUTOSCALERS = f"{GROUP_VERSION}/namespaces/default/federatedhorizontalpodautoscalers"
DEPLOYMENTS = f"{GROUP_VERSION}/namespaces/default/federateddeployments"
_NUMBERS = itertools.count()
_CPU = {"type": "Resource", "resource": {"name": "cpu"}}
_PODS = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": []}}


def _autoscaler(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "FederatedHorizontalPodAutoscaler",
        "metadata": {"name": f"a-{next(_NUMBERS)}"},
        "spec": {
            "scaleTargetRef": {"kind": "FederatedDeployment", "name": "web"},
            "maxReplicas": 10,
            **spec,
        },
    }


def _deployment(**spec: Any) -> dict[str, Any]:
    template = {"spec": {"selector": {"matchLabels": {"app": "x"}}, "template": _PODS}}
    return {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "FederatedDeployment",
        "metadata": {"name": f"d-{next(_NUMBERS)}"},
        "spec": {"template": template, **spec},
    }


async def _created(client: KubeClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.json.decode(await client.create(path, body))
    return made


async def _refusal(kubeconfig: dict[str, Path], path: str, body: dict[str, Any]) -> str:
    async with await KubeClient.from_kubeconfig(kubeconfig["admin"]) as client:
        await install_fedhpa(client)
        with pytest.raises(ApiError) as refused:
            await client.create(path, body)
    assert refused.value.status == 422
    return refused.value.message


def _cpu(target: dict[str, Any]) -> dict[str, Any]:
    return {"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]}


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"minReplicas": 11}, "spec.minReplicas", "is greater than maxReplicas"),
        ({"minReplicas": 0}, "spec.minReplicas", "greater than or equal to 1"),
        ({"maxReplicas": None}, "spec.maxReplicas", "Required"),
        (
            {"scaleTargetRef": {"kind": "Deployment", "name": "web"}},
            "spec.scaleTargetRef.kind",
            "FederatedReplicaSet",
        ),
        ({"metrics": [{"type": "Resource"}]}, "spec.metrics[0].resource", "is needed for type"),
        (
            {"metrics": [{**_CPU, "type": "Pods"}]},
            "spec.metrics[0].resource.target",
            "Required",
        ),
        (
            _cpu({"type": "Utilization", "averageValue": "1"}),
            "spec.metrics[0].resource.target.averageUtilization",
            "is needed for type Utilization",
        ),
        (
            _cpu({"type": "AverageValue", "averageValue": "0"}),
            "spec.metrics[0].resource.target.averageValue",
            "must be greater than 0",
        ),
        (
            {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 9999}}},
            "spec.behavior.scaleDown.stabilizationWindowSeconds",
            "3600",
        ),
        (
            {"clusters": {"names": ["a"], "selector": {"matchLabels": {"x": "y"}}}},
            "spec.clusters.selector",
            "exclude each other",
        ),
        ({"clusters": {"names": ["a", "a"]}}, "spec.clusters.names[1]", "Duplicate"),
        (
            {"preferences": [{"cluster": "a", "minReplicas": 3, "maxReplicas": 2}]},
            "spec.preferences[0].minReplicas",
            "is greater than this cluster's maxReplicas",
        ),
        (
            {"preferences": [{"cluster": "a"}, {"cluster": "a"}]},
            "spec.preferences[1]",
            "Duplicate",
        ),
        ({"rebalance": {"cooldownSeconds": 0}}, "spec.rebalance.cooldownSeconds", "1"),
        ({"rebalance": {"minUsagePercent": 101}}, "spec.rebalance.minUsagePercent", "100"),
    ],
)
async def test_an_autoscalers_rejection_names_the_field(
    kubeconfig: dict[str, Path], spec: dict[str, Any], field: str, words: str
) -> None:
    message = await _refusal(kubeconfig, AUTOSCALERS, _autoscaler(**spec))
    assert field in message
    assert words in message


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        (_deployment(replicas=-1), "spec.replicas", "0"),
        (_deployment(template={"spec": {}}), "spec.template.spec.selector", "Required"),
        (
            _deployment(template={"spec": {"replicas": 3, "selector": {}, "template": _PODS}}),
            "spec.template.spec.replicas",
            "use spec.replicas",
        ),
        (
            _deployment(template={"spec": {"selector": {}, "template": {"metadata": "x"}}}),
            "spec.template.spec.template.metadata",
            "must be of type object",
        ),
        (
            _deployment(clusters={"selector": {"matchLabels": {"": "x"}}}),
            "spec.clusters.selector.matchLabels",
            "without a name",
        ),
        (
            {**_deployment(), "metadata": {"name": "d" * 51}},
            "metadata.name",
            "longer than 50",
        ),
    ],
)
async def test_a_workloads_rejection_names_the_field(
    kubeconfig: dict[str, Path], body: dict[str, Any], field: str, words: str
) -> None:
    message = await _refusal(kubeconfig, DEPLOYMENTS, body)
    assert field in message
    assert words in message


async def test_a_full_autoscaler_is_accepted_and_gets_safe_defaults(
    kubeconfig: dict[str, Path],
) -> None:
    body = _autoscaler(
        minReplicas=2,
        metrics=[
            {
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 60},
                },
            },
            {
                "type": "External",
                "external": {
                    "metric": {"name": "queue", "selector": {"matchLabels": {"q": "a"}}},
                    "target": {"type": "AverageValue", "averageValue": "30"},
                },
            },
        ],
        behavior={
            "scaleUp": {
                "selectPolicy": "Max",
                "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
            }
        },
        clusters={"names": ["onprem", "cloud"]},
        preferences=[{"cluster": "onprem", "minReplicas": 1}, {"cluster": "*", "maxReplicas": 5}],
    )
    async with await KubeClient.from_kubeconfig(kubeconfig["admin"]) as client:
        await install_fedhpa(client)
        made = await _created(client, AUTOSCALERS, body)
        assert made["spec"]["clusters"]["names"] == ["onprem", "cloud"]
        assert made["spec"]["rebalance"] == {
            "enabled": True,
            "headroomPercent": 10,
            "stabilizationSeconds": 120,
            "cooldownSeconds": 120,
            "schedulingTimeoutSeconds": 180,
            "retrySeconds": 600,
            "idleTimeoutSeconds": 600,
            "minUsagePercent": 30,
        }
        await client.delete(f"{AUTOSCALERS}/{body['metadata']['name']}")


async def test_a_federated_deployment_can_be_scaled_like_any_other(
    kubeconfig: dict[str, Path],
) -> None:
    body = _deployment(replicas=3)
    async with await KubeClient.from_kubeconfig(kubeconfig["admin"]) as client:
        await install_fedhpa(client)
        await _created(client, DEPLOYMENTS, body)
        path = f"{DEPLOYMENTS}/{body['metadata']['name']}"
        await client.patch(f"{path}/scale", {"spec": {"replicas": 7}})
        assert msgspec.json.decode(await client.get(path))["spec"]["replicas"] == 7
        await client.delete(path)


async def test_the_guides_example_is_accepted_as_it_stands(kubeconfig: dict[str, Path]) -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "federated-hpa.yaml"
    async with await KubeClient.from_kubeconfig(kubeconfig["admin"]) as client:
        await install_fedhpa(client)
        paths = {"FederatedDeployment": DEPLOYMENTS}
        for body in yaml.safe_load_all(guide.read_text()):
            path = paths.get(body["kind"], AUTOSCALERS)
            await _created(client, path, body)
            await client.delete(f"{path}/{body['metadata']['name']}")
