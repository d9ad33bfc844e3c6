"""Pods with claims, from the unbound claim to the bound one, on a real API server."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bigfleet.controllers.pod_controller import role as pod_controller
from bigfleet.controllers.pod_controller.pods import Pod
from bigfleet.controllers.pod_controller.volumes import Volumes
from bigfleet.kube.client import KubeClient
from bigfleet.tasks import run_until_stopped
from tests.support.clusters import admin, get, namespace, pod, requests_path, role
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

_ZONE = "topology.kubernetes.io/zone"
_CLASSES, _VOLUMES = "/apis/storage.k8s.io/v1/storageclasses", "/api/v1/persistentvolumes"


@asynccontextmanager
async def _controller(kubeconfig: dict[str, Path]) -> AsyncIterator[None]:
    """Under its own rights only."""
    settings = pod_controller.PodControllerConfig(
        kubeconfig["bigfleet-pod-controller"], observe_port=0
    )
    async with role(partial(pod_controller.run, settings)):
        yield


@asynccontextmanager
async def _storage_class(client: KubeClient, name: str, **more: Any) -> AsyncIterator[str]:
    body = {"metadata": {"name": name}, "provisioner": "example.com/none", **more}
    await client.create(_CLASSES, body)
    try:
        yield name
    finally:
        await client.delete(f"{_CLASSES}/{name}")


def _claim(name: str, storage_class: str, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": storage_class,
            **more,
        },
    }


def _volume(name: str, where: str, claim: str, zone: str) -> dict[str, Any]:
    """A volume in `zone` that is kept for the claim."""
    term = {"matchExpressions": [{"key": _ZONE, "operator": "In", "values": [zone]}]}
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": "example.com", "volumeHandle": name},
            "storageClassName": "",
            "claimRef": {"namespace": where, "name": claim},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }


def _with_claim(name: str, claim: str) -> dict[str, Any]:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    return pod(name, volumes=[volume], schedulerName="nobody")


async def _zones(client: KubeClient, where: str, name: str) -> list[str] | None:
    """The zones that the request of the pod is held to; None without a request."""
    for request in (await get(client, requests_path(where)))["items"]:
        if request["metadata"]["ownerReferences"][0]["name"] == name:
            conditions = request["spec"]["requirements"]
            return next((c["values"] for c in conditions if c["key"] == _ZONE), [])
    return None


async def _until_zones(
    client: KubeClient, where: str, name: str, zones: list[str] | None, what: str
) -> None:
    async def reached() -> bool:
        return await _zones(client, where, name) == zones

    await eventually(reached, what)


async def test_a_claim_that_waits_for_its_pod_allows_what_its_class_does_until_it_is_bound(
    kubeconfig: dict[str, Path],
) -> None:
    allowed = [{"matchLabelExpressions": [{"key": _ZONE, "values": ["a", "b"]}]}]
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "waits-for-consumer") as where,
        _storage_class(
            client,
            "first-consumer",
            volumeBindingMode="WaitForFirstConsumer",
            allowedTopologies=allowed,
        ) as fast,
        _controller(kubeconfig),
    ):
        claims = f"/api/v1/namespaces/{where}/persistentvolumeclaims"
        await client.create(claims, _claim("data", fast))
        await client.create(f"/api/v1/namespaces/{where}/pods", _with_claim("db", "data"))
        await _until_zones(client, where, "db", ["a", "b"], "a request where the class allows it")
        volume = _volume("pv-first-consumer", where, "data", "b")
        volume["spec"]["storageClassName"] = fast
        await client.create(_VOLUMES, volume)
        await client.patch(f"{claims}/data", {"spec": {"volumeName": "pv-first-consumer"}})
        await _until_zones(client, where, "db", ["b"], "the request where the volume is")
        await client.delete(f"{_VOLUMES}/pv-first-consumer")


async def test_a_pod_whose_claim_must_be_bound_first_has_no_request_until_then(
    kubeconfig: dict[str, Path],
) -> None:
    """kube-scheduler does not try it; the claim may even be created after the pod."""
    async with await admin(kubeconfig) as client, namespace(client, "bound-first") as where:
        pods = f"/api/v1/namespaces/{where}/pods"
        claims = f"/api/v1/namespaces/{where}/persistentvolumeclaims"
        async with _controller(kubeconfig):
            await client.create(pods, _with_claim("db", "data"))
            await client.create(pods, pod("plain"))
            await _until_zones(client, where, "plain", [], "the request of a pod without claims")
            await client.create(claims, _claim("data", ""))
            # The requests that follow show that the claim has been seen, and the pod judged anew.
            await client.create(pods, _with_claim("other", "none"))
            await client.create(pods, pod("later"))
            await _until_zones(client, where, "later", [], "the request of a later pod")
            assert await _zones(client, where, "db") is None
            assert await _zones(client, where, "other") is None
            await client.create(_VOLUMES, _volume("pv-bound-first", where, "data", "c"))
            await client.patch(f"{claims}/data", {"spec": {"volumeName": "pv-bound-first"}})
            await _until_zones(client, where, "db", ["c"], "the request once its claim is bound")
        await client.delete(f"{_VOLUMES}/pv-bound-first")


async def test_a_claim_of_a_class_without_provisioner_is_bound_where_free_volumes_are(
    kubeconfig: dict[str, Path],
) -> None:
    """As soon as there is one more, its zone is allowed, too."""
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "without-provisioner") as where,
        _storage_class(
            client,
            "zonal",
            provisioner="kubernetes.io/no-provisioner",
            volumeBindingMode="WaitForFirstConsumer",
        ) as zonal,
        _controller(kubeconfig),
    ):
        claims = f"/api/v1/namespaces/{where}/persistentvolumeclaims"
        pods = f"/api/v1/namespaces/{where}/pods"
        await client.create(claims, _claim("data", zonal))
        await client.create(pods, _with_claim("db", "data"))
        await _until_zones(client, where, "db", [], "a request: a new machine may bring a volume")
        for name, zones in (("c", ["c"]), ("a", ["a", "c"])):
            volume = _volume(f"pv-free-{name}", where, "", name)
            volume["spec"] |= {"storageClassName": zonal, "claimRef": None}
            await client.create(_VOLUMES, volume)
            await _until_zones(client, where, "db", zones, f"a request for {zones}")
        for name in ("c", "a"):
            await client.delete(f"{_VOLUMES}/pv-free-{name}")


async def test_a_restart_leaves_the_request_of_a_pod_with_claims_alone(
    kubeconfig: dict[str, Path],
) -> None:
    """While claims are not listed yet, nobody knows that the request is wrong; and it is right."""
    async with await admin(kubeconfig) as client, namespace(client, "restarts") as where:
        claims = f"/api/v1/namespaces/{where}/persistentvolumeclaims"
        await client.create(_VOLUMES, _volume("pv-restarts", where, "data", "d"))
        await client.create(claims, _claim("data", "", volumeName="pv-restarts"))
        await client.create(f"/api/v1/namespaces/{where}/pods", _with_claim("db", "data"))
        async with _controller(kubeconfig):
            await _until_zones(client, where, "db", ["d"], "the request")
        [before] = (await get(client, requests_path(where)))["items"]
        async with _controller(kubeconfig):
            await client.create(f"/api/v1/namespaces/{where}/pods", _with_claim("db2", "data"))
            await _until_zones(client, where, "db2", ["d"], "the request of a second pod")
            after = (await get(client, requests_path(where)))["items"]
            uids = {
                r["metadata"]["ownerReferences"][0]["name"]: r["metadata"]["uid"] for r in after
            }
            assert uids["db"] == before["metadata"]["uid"]
        await client.delete(f"{_VOLUMES}/pv-restarts")


def _seen(name: str, where: str) -> Pod:
    body = _with_claim(name, "data")
    body["metadata"] |= {"namespace": where, "uid": name}
    return msgspec.json.decode(msgspec.json.encode(body), type=Pod)


async def test_a_changed_claim_does_not_affect_deleted_pods(
    kubeconfig: dict[str, Path],
) -> None:
    """Otherwise the request of such a pod would be written again."""
    notified: Counter[str] = Counter()
    async with (
        await admin(kubeconfig) as client,
        await KubeClient.from_kubeconfig(kubeconfig["bigfleet-pod-controller"]) as own,
        namespace(client, "stay-gone") as where,
    ):
        claim = f"/api/v1/namespaces/{where}/persistentvolumeclaims"
        await client.create(claim, _claim("data", ""))
        volumes = Volumes(own, lambda pod: notified.update([pod.metadata.uid]))

        async def notified_of(*pods: str) -> None:
            notified.clear()
            await client.patch(f"{claim}/data", {"metadata": {"labels": {"at": "-".join(pods)}}})

            async def complete() -> bool:
                return set(notified) == set(pods)

            await eventually(complete, f"the pods {pods} to be looked at again")

        async with role(lambda stop: run_until_stopped(stop, volumes.run())):
            for name in ("gone", "stays"):
                assert not volumes.observe(_seen(name, where), wants=True), "nothing is known yet"
            await notified_of("gone", "stays")
            volumes.forget("gone")
            await notified_of("stays")
            volumes.forget_all()
            assert volumes.observe(_seen("new", where), wants=True)
            await notified_of("new")
            assert volumes.observe(_seen("new", where), wants=False)
            assert volumes.observe(_seen("last", where), wants=True)
            await notified_of("last")
