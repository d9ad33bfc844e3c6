"""One CapacityRequest per Pod, from the Pod's creation to its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bigfleet.api.wellknown import MACHINE_LABEL, RECLAIM_DEADLINE
from bigfleet.controllers.pod_controller import role as pod_controller
from bigfleet.kube.client import STRATEGIC_PATCH, KubeClient
from tests.support.clusters import admin, get, namespace, node, pod, requests_path, role
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster


@asynccontextmanager
async def _controller(kubeconfig: dict[str, Path], *ignored: str) -> AsyncIterator[None]:
    settings = pod_controller.PodControllerConfig(
        kubeconfig["bigfleet-pod-controller"], observe_port=0, ignored_namespaces=ignored
    )
    async with role(partial(pod_controller.run, settings)):
        yield


def _pod(name: str, **spec: Any) -> dict[str, Any]:
    """A pod that no scheduler finds unschedulable: it makes one request and no additional ones."""
    return pod(name, schedulerName="nobody", **spec)


async def _requests(client: KubeClient, where: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await get(client, requests_path(where)))["items"]
    return found


async def _until_count(client: KubeClient, where: str, count: int, what: str) -> None:
    # The garbage collector looks for new kinds every 30 s, and ours are new here; until its watch
    # of them stands, it may give up and begin again more than once.
    async def reached() -> bool:
        return len(await _requests(client, where)) == count

    await eventually(reached, what, seconds=150)


async def test_a_request_comes_with_its_pod_and_goes_with_it(kubeconfig: dict[str, Path]) -> None:
    async with await admin(kubeconfig) as client, namespace(client, "comes-and-goes") as where:
        pods = f"/api/v1/namespaces/{where}/pods"
        await client.create(pods, _pod("before"))
        async with _controller(kubeconfig):
            await _until_count(client, where, 1, "the request of a Pod that was there before")
            await client.create(pods, _pod("after", nodeSelector={"zone": "a"}))
            await _until_count(client, where, 2, "the request of a Pod that came later")
            after = next(
                r for r in await _requests(client, where) if r["metadata"]["name"].startswith("aft")
            )
            assert after["spec"]["resources"] == {"cpu": "100m", "memory": "65536Ki", "pods": "1"}
            assert after["spec"]["requirements"][0]["values"] == ["a"]
            await client.delete(f"{pods}/after", {"gracePeriodSeconds": 0})
            await _until_count(client, where, 1, "the request to go with its Pod")


async def test_pods_of_an_ignored_namespace_ask_for_nothing(kubeconfig: dict[str, Path]) -> None:
    """They run where BigFleet has no machines, such as on a control plane's own node."""
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "ignored") as ignored,
        namespace(client, "served") as served,
    ):
        await client.create(f"/api/v1/namespaces/{ignored}/pods", _pod("system"))
        async with _controller(kubeconfig, ignored, "kube-system"):
            await client.create(f"/api/v1/namespaces/{ignored}/pods", _pod("later"))
            await client.create(f"/api/v1/namespaces/{served}/pods", _pod("tenant"))
            await _until_count(client, served, 1, "the request of a Pod that is served")
            assert await _requests(client, ignored) == []


async def test_a_finished_pod_asks_for_nothing_even_if_it_finished_unseen(
    kubeconfig: dict[str, Path],
) -> None:
    async with await admin(kubeconfig) as client, namespace(client, "finished") as where:
        pods = f"/api/v1/namespaces/{where}/pods"
        for name in ("seen", "unseen"):
            await client.create(pods, _pod(name))
        async with _controller(kubeconfig):
            await _until_count(client, where, 2, "both requests")
            await client.patch(f"{pods}/seen/status", {"status": {"phase": "Succeeded"}})
            await _until_count(client, where, 1, "the finished Pod's request to go")
        await client.patch(f"{pods}/unseen/status", {"status": {"phase": "Failed"}})
        async with _controller(kubeconfig):
            await _until_count(client, where, 0, "the other's to go after a restart")


@pytest.mark.parametrize(
    ("kind", "marks", "stays"),
    [
        ("ReplicaSet", {RECLAIM_DEADLINE: "9999999999"}, False),
        ("StatefulSet", {RECLAIM_DEADLINE: "9999999999"}, True),
        ("ReplicaSet", {}, True),
    ],
)
async def test_a_pod_evicted_from_a_reclaimed_machine_asks_for_nothing_once_it_is_replaced(
    kubeconfig: dict[str, Path], kind: str, marks: dict[str, str], *, stays: bool
) -> None:
    """Its replacement has a request of its own. A StatefulSet's Pod has none before it is gone, and
    on a machine that stays a terminating Pod needs its place.
    """
    name = f"m-{kind.lower()}-{len(marks)}"
    async with await admin(kubeconfig) as client, namespace(client, name) as where:
        pods, labels = f"/api/v1/namespaces/{where}/pods", {"kubernetes.io/hostname": name}
        labels[MACHINE_LABEL] = name
        # Nobody plays this Node, so its Pods terminate until somebody removes them.
        await client.create("/api/v1/nodes", node(name, labels=labels, annotations=marks))

        async def asking() -> set[str]:
            found = await _requests(client, where)
            return {each["metadata"]["ownerReferences"][0]["name"] for each in found}

        async def there() -> set[str]:
            return {each["metadata"]["name"] for each in (await get(client, pods))["items"]}

        async def is_seen() -> bool:
            return bool((await get(client, f"{owners}/o"))["status"].get("replicas") == 1)

        async def is_replaced() -> bool:
            return len(await there()) == (3 if kind == "ReplicaSet" else 2)

        async def settled() -> bool:
            return await asking() == await there() - (set() if stays else {evicted})

        async with _controller(kubeconfig):
            owners = f"/apis/apps/v1/namespaces/{where}/{kind.lower()}s"
            await client.create(owners, _owner(kind))
            await _until_count(client, where, 1, "the request of a running Pod")
            # A controller that first sees its Pod when it terminates waits minutes for it.
            await eventually(is_seen, "the controller to see its Pod")
            [evicted] = await asking()
            await _bind(client, where, evicted, name)
            await client.delete(f"{pods}/{evicted}")
            await client.create(pods, _pod("later"))
            await eventually(is_replaced, "the replacement of the Pod")
            await eventually(settled, "the requests after the eviction")
        await client.delete(f"{pods}/{evicted}", {"gracePeriodSeconds": 0})
        await client.delete(f"/api/v1/nodes/{name}")


def _owner(kind: str) -> dict[str, Any]:
    """A controller of one Pod, which terminates for ten minutes and which nobody schedules."""
    spec = _pod("", terminationGracePeriodSeconds=600)["spec"]
    labels = {"app": "owned"}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "o"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


async def _bind(client: KubeClient, where: str, name: str, to: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": to}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    await client.create(f"/api/v1/namespaces/{where}/pods/{name}/binding", body)


async def test_what_somebody_deletes_or_changes_is_put_right(kubeconfig: dict[str, Path]) -> None:
    async with await admin(kubeconfig) as client, namespace(client, "put-right") as where:
        await client.create(f"/api/v1/namespaces/{where}/pods", _pod("p"))
        async with _controller(kubeconfig):
            await _until_count(client, where, 1, "the request")
            [before] = await _requests(client, where)
            path = f"{requests_path(where)}/{before['metadata']['name']}"
            await client.patch(path, {"spec": {"priority": 7, "interruptionPenalty": "1"}})

            async def corrected() -> bool:
                found = await get(client, path)
                return found is not None and bool(found["spec"] == before["spec"])

            await eventually(corrected, "the changed request to be corrected")
            await client.delete(path)
            await eventually(corrected, "the deleted request to come back")


async def test_a_pod_that_is_resized_in_place_asks_for_the_larger_of_both_sizes(
    kubeconfig: dict[str, Path],
) -> None:
    """Of the one it asks for, and the one that its machine has set aside: as the scheduler does."""
    async with await admin(kubeconfig) as client, namespace(client, "resized") as where:
        path = f"/api/v1/namespaces/{where}/pods"
        await client.create(path, _pod("p"))

        async def asks_for(name: str, cpu: str) -> bool:
            asked = {
                r["metadata"]["ownerReferences"][0]["name"]: r["spec"]["resources"]["cpu"]
                for r in await _requests(client, where)
            }
            return asked.get(name) == cpu

        def status(cpu: str) -> dict[str, Any]:
            container = {"name": "c", "image": "i", "imageID": "i", "ready": True}
            amounts = {"resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}}
            statuses = [{**container, "restartCount": 0, **amounts}]
            return {"status": {"containerStatuses": statuses}}

        def resized(cpu: str) -> dict[str, Any]:
            resources = {"requests": {"cpu": cpu}}
            return {"spec": {"containers": [{"name": "c", "resources": resources}]}}

        async with _controller(kubeconfig):
            await eventually(partial(asks_for, "p", "100m"), "the request")
            await client.patch(f"{path}/p/status", status("100m"), STRATEGIC_PATCH)
            await client.patch(f"{path}/p/resize", resized("300m"), STRATEGIC_PATCH)
            await eventually(partial(asks_for, "p", "300m"), "the larger size, which is asked for")
            await client.patch(f"{path}/p/status", status("300m"), STRATEGIC_PATCH)
            await client.patch(f"{path}/p/resize", resized("200m"), STRATEGIC_PATCH)
            await client.create(path, _pod("later"))
            await _until_count(client, where, 2, "a later pod's request")
            assert await asks_for("p", "300m"), "as long as its machine has not given it back"
            await client.patch(f"{path}/p/status", status("200m"), STRATEGIC_PATCH)
            await eventually(partial(asks_for, "p", "200m"), "the size that is in force")


async def test_a_pod_that_cannot_be_understood_gets_no_request_and_harms_no_other(
    kubeconfig: dict[str, Path],
) -> None:
    named = {"key": "metadata.name", "operator": "In", "values": ["n-1"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [named]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    async with await admin(kubeconfig) as client, namespace(client, "not-understood") as where:
        pods = f"/api/v1/namespaces/{where}/pods"
        async with _controller(kubeconfig):
            await client.create(pods, _pod("odd", affinity=affinity))
            await client.create(pods, _pod("plain"))
            await _until_count(client, where, 1, "the plain Pod's request")
            [found] = await _requests(client, where)
            assert found["metadata"]["name"].startswith("plain-")


_SAME_ZONE = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
        ]
    }
}


async def _workload(client: KubeClient, path: str, spec: dict[str, Any]) -> None:
    """An object whose controller makes pods of a gang, named after the collection in `path`."""
    template = _pod("t", affinity=_SAME_ZONE, restartPolicy=spec.pop("restartPolicy", "Always"))
    name = path.rsplit("/", 1)[1].removesuffix("s")
    await client.create(path, {"metadata": {"name": name}, "spec": {**spec, "template": template}})


async def _sizes(client: KubeClient, where: str) -> Counter[tuple[str, str | None]]:
    """What the requests say of their gangs, by their Pods' names up to the first hyphen."""
    return Counter(
        (
            r["metadata"]["ownerReferences"][0]["name"].split("-")[0],
            (r["metadata"].get("annotations") or {}).get("bigfleet.lucy.sh/gang-members"),
        )
        for r in await _requests(client, where)
    )


async def test_a_request_says_how_many_its_gang_will_have_where_its_owner_does(
    kubeconfig: dict[str, Path],
) -> None:
    """Not where pods come one after the other: each would wait for all to be there."""
    async with await admin(kubeconfig) as client, namespace(client, "gang-sizes") as where:
        apps, batch = (f"/apis/{group}/namespaces/{where}" for group in ("apps/v1", "batch/v1"))
        await _workload(
            client, f"{batch}/jobs", {"parallelism": 4, "completions": 3, "restartPolicy": "Never"}
        )
        ordered = {"replicas": 3, "serviceName": "s", "selector": {"matchLabels": {"app": "x"}}}
        await _workload(client, f"{apps}/statefulsets", ordered)
        own = _pod("own", affinity=_SAME_ZONE)
        own["metadata"]["annotations"] = {"bigfleet.lucy.sh/gang-members": "7"}
        for member in own, _pod("single"), _pod("bare", affinity=_SAME_ZONE):
            await client.create(f"/api/v1/namespaces/{where}/pods", member)
        async with _controller(kubeconfig):
            # Of the ordered StatefulSet there is one pod until that one is ready.
            await _until_count(client, where, 7, "the requests of all seven")
            assert await _sizes(client, where) == {
                ("job", "3"): 3,
                ("statefulset", None): 1,
                ("own", "7"): 1,
                ("single", None): 1,
                ("bare", None): 1,
            }
