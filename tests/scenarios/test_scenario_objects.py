"""All objects of all scenarios, shown to a real API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bigfleet.kube.client import APPLY_PATCH, ApiError, KubeClient
from loaddriver.substrates.base import Cluster
from tests.scenarios import objects
from tests.scenarios.files import Case, load_all
from tests.scenarios.resources import Resources, UnknownKind
from tests.support.clusters import get, namespace
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

DRY_RUN = {"fieldManager": "kubectl", "fieldValidation": "Strict", "dryRun": "All"}


async def refusals(client: KubeClient, resources: Resources, case: Case) -> list[str]:
    """What the API server says against the objects of one scenario."""
    found = []
    for number, step in enumerate(case.scenario.steps):
        for position, body in enumerate(step.apply or ()):
            where = f"{case.group}/{case.name}.yaml: steps[{number}].apply[{position}]"
            try:
                await shown(client, resources, body)
            except (ApiError, UnknownKind) as error:
                found.append(f"{where} ({objects.reference_of(body)}): {error}")
    return found


async def shown(client: KubeClient, resources: Resources, body: dict[str, Any]) -> None:
    """A dry run: the API server checks it as if it were to be kept. All live in one namespace."""
    own = objects.NAMESPACE if objects.namespace_of(body) else ""
    if own:
        body = {**body, "metadata": {**body["metadata"], "namespace": own}}
    path = resources.path(body["kind"], own, body["metadata"]["name"])
    await client.patch(path, body, APPLY_PATCH, DRY_RUN)


async def test_every_object_is_taken_by_a_real_api_server(cluster: Cluster) -> None:
    """Unknown fields, too, are errors, as with kubectl."""
    cases = load_all()
    async with await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as client:
        resources = await Resources.of(client)
        async with namespace(client, objects.NAMESPACE):
            found = await asyncio.gather(*(refusals(client, resources, case) for case in cases))
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spek": {}}
            with pytest.raises(ApiError, match="spek"):
                await shown(client, resources, body)
        await gone(client)
    assert [text for texts in found for text in texts] == []


async def gone(client: KubeClient) -> None:
    """Other tests may want a namespace of this name."""

    async def none() -> bool:
        return await get(client, f"/api/v1/namespaces/{objects.NAMESPACE}") is None

    await eventually(none, "the namespace is gone")
