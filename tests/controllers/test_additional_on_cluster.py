"""Pods that are unschedulable for a real kube-scheduler, and their additional requests."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bigfleet.api.install import GROUP_VERSION
from bigfleet.controllers.pod_controller import additional_requests
from bigfleet.controllers.pod_controller.controller import PodController
from bigfleet.controllers.pod_controller.unschedulable import (
    MAX_ADDITIONAL_PER_POD,
    MAX_ASKING_PER_GROUP,
    UNSCHEDULABLE_DELAY_SECONDS,
)
from bigfleet.kube.client import APPLY_PATCH, KubeClient
from bigfleet.observe import metrics
from bigfleet.tasks import run_until_stopped
from tests.support.clusters import (
    add_ready_node,
    admin,
    get,
    namespace,
    pod,
    ready_nodes,
    requests_path,
    role,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

_SPEED = 40  # a hold is 0.4 s, and all three requests take 6.4 s


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(additional_requests, "_POLL_INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(additional_requests, "_SHORT_EVENT_INTERVAL_SECONDS", 0.1)
    monkeypatch.setattr(additional_requests, "_FOLLOW_INTERVAL_SECONDS", 0.1)


@asynccontextmanager
async def _quick_controller(
    kubeconfig: Mapping[str, Path], speed: float = _SPEED, client: type[KubeClient] = KubeClient
) -> AsyncIterator[None]:
    """The pod controller, for which time passes faster."""
    async with await client.from_kubeconfig(kubeconfig["bigfleet-pod-controller"]) as own:
        quick = PodController(own, 16, lambda: speed * time.monotonic(), time.time)
        async with role(lambda stop: run_until_stopped(stop, quick.run())):
            yield


async def _additional(client: KubeClient, where: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await get(client, requests_path(where)))["items"]
    return [each for each in found if each["spec"].get("additional")]


async def _until_asked(
    client: KubeClient, where: str, times: int, what: str, *, pods: int = 1
) -> list[dict[str, Any]]:
    """The requests with which so many `pods` asked for the last of so many `times`, once they are
    there. Not a total: on a busy machine a pod may ask once more before it is read.
    """
    found: list[dict[str, Any]] = []

    async def asked() -> bool:
        found[:] = [
            each
            for each in await _additional(client, where)
            if each["metadata"]["name"].endswith(f"-additional-{times}")
        ]
        return len(found) == pods

    await eventually(asked, what)
    return found


async def _until_none(client: KubeClient, where: str, what: str) -> None:
    async def none_left() -> bool:
        return not await _additional(client, where)

    await eventually(none_left, what)


async def _events(client: KubeClient, where: str, name: str) -> dict[str, dict[str, Any]]:
    """Ours on a Pod, by their reasons."""
    found = (await get(client, f"/api/v1/namespaces/{where}/events"))["items"]
    ours = [e for e in found if e["source"].get("component") == "bigfleet-pod-controller"]
    return {e["reason"]: e for e in ours if e["involvedObject"]["name"] == name}


async def _condition(client: KubeClient, where: str, kind: str) -> dict[str, Any]:
    """The condition of that type on the only Pod's first request."""
    found = (await get(client, requests_path(where)))["items"]
    [first] = [each for each in found if not each["spec"].get("additional")]
    conditions = first.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), {})


def _large(name: str, cpu: str = "50", **spec: Any) -> dict[str, Any]:
    """A Pod that fits only on a Node of 64 CPUs."""
    body = pod(name, **spec)
    body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return body


async def test_a_pod_that_does_not_fit_requests_a_machine_then_another_and_none_once_bound(
    kubeconfig: dict[str, Path],
) -> None:
    async with (
        await admin(kubeconfig) as client,
        ready_nodes(client, "n-small"),
        namespace(client, "does-not-fit") as where,
    ):
        await client.create(f"/api/v1/namespaces/{where}/pods", _large("big"))
        async with _quick_controller(kubeconfig):
            [first] = await _until_asked(client, where, 1, "an additional request")
            assert first["spec"]["resources"]["cpu"] == "50"
            assert first["metadata"]["ownerReferences"][0]["name"] == "big"
            await _until_asked(client, where, 2, "a second one")

            async def told() -> bool:
                events = await _events(client, where, "big")
                condition = await _condition(client, where, "AdditionalCapacityRequested")
                message = condition.get("message", "")
                said = re.search("additional machine [23] of at most 3", message)
                return "AdditionalCapacityRequested" in events and said is not None

            await eventually(told, "the Pod's Event and its request's condition")
            condition = await _condition(client, where, "AdditionalCapacityRequested")
            assert (condition["status"], condition["reason"]) == ("True", "Unschedulable")
            assert "Insufficient cpu" in condition["message"]
            await add_ready_node(client, "n-roomy", "64")
            await _until_none(client, where, "the additional requests to go when it is bound")

            async def closed() -> bool:
                said = await _condition(client, where, "AdditionalCapacityRequested")
                return (said["status"], said["reason"]) == ("False", "Scheduled")

            await eventually(closed, "the condition to say so")
        await client.delete(f"/api/v1/namespaces/{where}/pods/big", {"gracePeriodSeconds": 0})
        await client.delete("/api/v1/nodes/n-roomy")


_KEPT: dict[str, Any] = {"tolerations": [{"key": "kept"}]}
_RACK = "example.com/rack"


def _of_the_gang(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    """A pod that must run in the rack of its gang."""
    beside = {"topologyKey": _RACK, "labelSelector": {"matchLabels": {"gang": "g"}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [beside]}
    body = _large(name, cpu, affinity={"podAffinity": required}, **_KEPT, **spec)
    body["metadata"]["labels"] = {"gang": "g"}
    return body


@asynccontextmanager
async def _node_in_rack(
    client: KubeClient, name: str, cpu: str, ready: str, rack: str = "r1"
) -> AsyncIterator[None]:
    """A Node for pods that tolerate `kept`: those of other tests would take it."""
    size = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, _RACK: rack}},
        "spec": {"taints": [{"key": "kept", "effect": "NoSchedule"}]},
        "status": {
            "capacity": size,
            "allocatable": size,
            "conditions": [{"type": "Ready", "status": ready, "reason": "Booting"}],
        },
    }
    await client.create("/api/v1/nodes", body)
    try:
        yield
    finally:
        await client.delete(f"/api/v1/nodes/{name}")


async def _becomes_ready(client: KubeClient, name: str) -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Booted"}
    await client.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": [ready]}})


async def _becomes_unschedulable(client: KubeClient, path: str) -> None:
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}
    await client.patch(f"{path}/status", {"status": {"conditions": [waits]}})


@asynccontextmanager
async def _last_of_a_gang(
    client: KubeClient,
    kubeconfig: Mapping[str, Path],
    where: str,
    scheduler: str = "",
    speed: float = 10,
) -> AsyncIterator[None]:
    """A gang of which one pod runs, and one of 50 CPUs has requested a machine in the same rack. It
    is unschedulable for good if its scheduler is another one.
    """
    pods = f"/api/v1/namespaces/{where}/pods"
    async with _node_in_rack(client, "n-full", "1", "True"):
        await client.create(pods, _of_the_gang("runs", "1", nodeName="n-full"))
        await client.create(pods, _of_the_gang("waits", "50", schedulerName=scheduler))
        if scheduler:
            await _becomes_unschedulable(client, f"{pods}/waits")
        async with _quick_controller(kubeconfig, speed):
            await _until_asked(client, where, 1, "an additional request")
            yield
        await client.delete(pods, {"gracePeriodSeconds": 0})  # nobody plays their kubelet


def _nominations() -> float:
    return float(metrics.pod_controller_nominations._value.get())


async def _on_node(client: KubeClient, pods: str, node: str) -> list[str]:
    """The names of the pods that are bound to the Node."""
    found = (await get(client, pods))["items"]
    return [each["metadata"]["name"] for each in found if each["spec"].get("nodeName") == node]


async def _nominated_node(client: KubeClient, where: str) -> str:
    """The Node that is nominated for the last pod of the gang; "" if none is."""
    waits = await get(client, f"/api/v1/namespaces/{where}/pods/waits")
    return str(waits["status"].get("nominatedNodeName", ""))


async def test_a_node_that_joins_is_kept_for_the_last_pod_of_a_gang(
    kubeconfig: dict[str, Path],
) -> None:
    """Others that come while it joins would fill it before that pod is tried again."""
    before = _nominations()
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "kept-for-it", until_gone=True) as where,
        # A nomination lasts for 15 s; kube-scheduler tries a pod again after 10 s at most.
        _last_of_a_gang(client, kubeconfig, where, speed=2),
        _node_in_rack(client, "n-joins", "64", "False"),
    ):
        pods = f"/api/v1/namespaces/{where}/pods"
        await eventually(lambda: _nominations() > before, "the Node to be nominated for the pod")
        others = [_large(f"other-{number}", "10", **_KEPT) for number in range(20)]
        await asyncio.gather(*(client.create(pods, other) for other in others))

        async def is_nominated() -> bool:
            return await _nominated_node(client, where) == "n-joins"

        # An attempt meanwhile has dropped the nomination, and the Node is nominated again.
        await eventually(is_nominated, "the Node to be nominated again")
        await _becomes_ready(client, "n-joins")

        async def bound() -> bool:
            return bool((await get(client, f"{pods}/waits"))["spec"].get("nodeName"))

        try:
            await eventually(bound, "the pod that waits to be bound")
        except AssertionError as error:
            raise AssertionError(f"{error}; {await _on_node(client, pods, 'n-joins')}") from None
        assert len(await _on_node(client, pods, "n-joins")) <= 2  # 50 CPUs, and one of 10


async def test_a_nomination_that_is_dropped_before_the_node_is_ready_is_made_again(
    kubeconfig: dict[str, Path],
) -> None:
    """kube-scheduler drops it when it tries the pod in vain; others would have the Node."""
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "dropped", until_gone=True) as where,
        _last_of_a_gang(client, kubeconfig, where, scheduler="of-nobody", speed=1),
        _node_in_rack(client, "n-dropped", "64", "False"),
    ):

        async def is_nominated() -> bool:
            return await _nominated_node(client, where) == "n-dropped"

        for _ in range(2):
            await eventually(is_nominated, "the Node to be nominated")
            path = f"/api/v1/namespaces/{where}/pods/waits/status"
            await client.patch(path, {"status": {"nominatedNodeName": None}})
        await eventually(is_nominated, "the Node to be nominated again")


async def test_a_nomination_that_is_not_followed_is_withdrawn(kubeconfig: dict[str, Path]) -> None:
    """It keeps room that others could use."""
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "withdrawn", until_gone=True) as where,
        _last_of_a_gang(client, kubeconfig, where, scheduler="of-nobody"),
        _node_in_rack(client, "n-never-ready", "64", "False"),
    ):

        async def is_nominated() -> bool:
            return await _nominated_node(client, where) == "n-never-ready"

        async def is_withdrawn() -> bool:
            return not await _nominated_node(client, where)

        await eventually(is_nominated, "the Node to be nominated")
        await eventually(is_withdrawn, "the nomination to be withdrawn")


_SHORT = {
    "type": "CapacityShort",
    "status": "True",
    "reason": "PriorityStarved",
    "message": "every machine serves others",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def _spreading(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    """A pod that spreads evenly over racks."""
    over = {
        "topologyKey": _RACK,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "even"}},
    }
    body = _large(name, cpu, topologySpreadConstraints=[over], **_KEPT, **spec)
    body["metadata"]["labels"] = {"app": "even"}
    return body


async def test_a_request_that_is_short_follows_the_skew_of_its_pod(
    kubeconfig: dict[str, Path],
) -> None:
    """Only rack r2 is open when it is made, and has no machine; once the other pod is gone, one in
    r1 serves as well.
    """

    async with (
        await admin(kubeconfig) as client,
        namespace(client, "follows", until_gone=True) as where,
        _node_in_rack(client, "n-r1", "1", "True", "r1"),
        _node_in_rack(client, "n-r2", "1", "True", "r2"),
    ):
        pods = f"/api/v1/namespaces/{where}/pods"
        await client.create(pods, _spreading("runs", "1", nodeName="n-r1"))
        await client.create(pods, _spreading("waits", "50"))
        async with _quick_controller(kubeconfig, speed=10):

            async def racks() -> list[str]:
                [made] = await _until_asked(client, where, 1, "an additional request")
                named = [each for each in made["spec"]["requirements"] if each["key"] == _RACK]
                values: list[str] = named[-1].get("values", [])
                return values

            assert await racks() == ["r2"]
            [made] = await _until_asked(client, where, 1, "an additional request")
            path = f"{requests_path(where)}/{made['metadata']['name']}/status"
            await client.patch(path, {"status": {"conditions": [_SHORT]}})
            await client.delete(f"{pods}/runs", {"gracePeriodSeconds": 0})

            async def follows() -> bool:
                return await racks() == ["r1", "r2"]

            await eventually(follows, "the request to name both racks")
        await client.delete(pods, {"gracePeriodSeconds": 0})


async def test_pods_that_spread_request_machines_in_all_their_domains(
    kubeconfig: dict[str, Path],
) -> None:
    """As many in each rack as may run there in the end, though they wait for the same racks now."""
    racks = ("r1", "r2", "r3")
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "even", until_gone=True) as where,
        AsyncExitStack() as nodes,
    ):
        for rack in racks:
            await nodes.enter_async_context(_node_in_rack(client, f"n-{rack}", "1", "True", rack))
        pods = f"/api/v1/namespaces/{where}/pods"
        for number in range(6):
            await client.create(pods, _spreading(f"waits-{number}", "50"))
        async with _quick_controller(kubeconfig, speed=10):
            made = await _until_asked(client, where, 1, "each to request a machine", pods=6)
            named = Counter(
                tuple(each["values"])
                for request in made
                for each in request["spec"]["requirements"]
                if each["key"] == _RACK
            )
            assert named == {(rack,): 2 for rack in racks}
        await client.delete(pods, {"gracePeriodSeconds": 0})


@pytest.mark.parametrize("listed_late", ["/api/v1/nodes", f"{GROUP_VERSION}/upcomingnodes"])
async def test_no_machine_is_requested_before_nodes_and_upcoming_machines_are_known(
    kubeconfig: dict[str, Path], listed_late: str
) -> None:
    """Until then no pod seems to have room, or a machine that is coming."""
    listing, listed = asyncio.Event(), asyncio.Event()

    class LateListing(KubeClient):
        async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
            if path == listed_late:
                listing.set()
                await listed.wait()
            return await super().get(path, query)

    async with (
        await admin(kubeconfig) as client,
        namespace(client, "listed-late", until_gone=True) as where,
    ):

        async def requested() -> bool:
            return bool((await get(client, requests_path(where)))["items"])

        await client.create(f"/api/v1/namespaces/{where}/pods", _large("waits", "51"))
        async with _quick_controller(kubeconfig, client=LateListing):
            await asyncio.wait_for(listing.wait(), 30)
            await eventually(requested, "the pod's first request")
            await asyncio.sleep(UNSCHEDULABLE_DELAY_SECONDS / _SPEED + 1)
            assert not await _additional(client, where)
            listed.set()
            await _until_asked(client, where, 1, "an additional request")


async def test_equivalent_unschedulable_pods_request_a_bounded_number_of_machines(
    kubeconfig: dict[str, Path],
) -> None:
    """Hundreds of them; in twice the time that all three requests of a pod take, and also under a
    controller that was started anew.
    """
    async with await admin(kubeconfig) as client, namespace(client, "stuck") as where:
        pods = f"/api/v1/namespaces/{where}/pods"
        for start in range(0, 500, 50):
            names = [f"p-{number}" for number in range(start, start + 50)]
            await asyncio.gather(*(client.create(pods, _large(name, "51")) for name in names))
        most = MAX_ASKING_PER_GROUP * MAX_ADDITIONAL_PER_POD
        async with _quick_controller(kubeconfig):
            await _until_asked(
                client,
                where,
                MAX_ADDITIONAL_PER_POD,
                "all that may ask to have asked",
                pods=MAX_ASKING_PER_GROUP,
            )
        async with _quick_controller(kubeconfig):
            await asyncio.sleep(7)
            assert len(await _additional(client, where)) == most
        owners = [r["metadata"]["ownerReferences"][0] for r in await _additional(client, where)]
        assert len({owner["name"] for owner in owners}) == MAX_ASKING_PER_GROUP


async def test_a_pod_requests_no_machine_while_one_that_fits_is_joining(
    kubeconfig: dict[str, Path],
) -> None:
    upcoming = f"{GROUP_VERSION}/upcomingnodes/m-coming"
    head = {"apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "UpcomingNode"}
    body: dict[str, Any] = {**head, "metadata": {"name": "m-coming"}}
    apply = {"fieldManager": "test", "force": "true"}
    size = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    # Pods of other tests that still wait would take it.
    taint = {"key": "kept", "value": "", "effect": "NoSchedule"}
    spec = {"resources": size, "taints": [taint]}
    async with await admin(kubeconfig) as client, namespace(client, "coming") as where:
        await client.patch(upcoming, {**body, "spec": spec}, APPLY_PATCH, apply)
        status = {**body, "status": {"phase": "Provisioning"}}
        await client.patch(f"{upcoming}/status", status, APPLY_PATCH, apply)
        await client.create(
            f"/api/v1/namespaces/{where}/pods", _large("big", tolerations=[{"key": "kept"}])
        )
        async with _quick_controller(kubeconfig):
            await asyncio.sleep(3)
            assert await _additional(client, where) == []
            await client.delete(upcoming)
            await _until_asked(client, where, 1, "a request once nothing is on its way")


async def test_a_pod_whose_need_is_short_gets_an_event_and_requests_no_more(
    kubeconfig: dict[str, Path],
) -> None:
    """Also one whose own request does not say it, but that of another which asks for the same."""
    async with await admin(kubeconfig) as client, namespace(client, "short") as where:
        pods = f"/api/v1/namespaces/{where}/pods"
        for name in ("one", "two"):
            unlike_others: dict[str, Any] = {
                "schedulerName": "nobody",
                "nodeSelector": {"of": where},
            }
            await client.create(pods, _large(name, **unlike_others))
        async with _quick_controller(kubeconfig):

            async def there() -> bool:
                return len((await get(client, requests_path(where)))["items"]) == 2

            await eventually(there, "both requests")
            requests = (await get(client, requests_path(where)))["items"]
            [named] = [r for r in requests if r["metadata"]["name"].startswith("one-")]
            path = f"{requests_path(where)}/{named['metadata']['name']}/status"
            await client.patch(path, {"status": {"conditions": [_SHORT]}})
            refused = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/0 nodes",
            }
            for name in ("one", "two"):
                await client.patch(f"{pods}/{name}/status", {"status": {"conditions": [refused]}})

            async def told() -> bool:
                events = [await _events(client, where, name) for name in ("one", "two")]
                return all("FailedProvisioning" in each for each in events)

            await eventually(told, "the Event on both Pods")
            event = (await _events(client, where, "two"))["FailedProvisioning"]
            assert event["type"] == "Warning"
            assert event["message"] == "PriorityStarved: every machine serves others"
            await asyncio.sleep(2)
            assert await _additional(client, where) == []
            met = {**_SHORT, "status": "False", "reason": "Satisfied"}
            await client.patch(path, {"status": {"conditions": [met]}})
            both = "both to ask once none is missing"
            await _until_asked(client, where, MAX_ADDITIONAL_PER_POD, both, pods=2)


_SAME_ZONE = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
        ]
    }
}


async def test_a_pod_with_running_affinity_peers_requests_a_machine_in_their_domain(
    kubeconfig: dict[str, Path],
) -> None:
    async with (
        await admin(kubeconfig) as client,
        ready_nodes(client, "n-companions", zone="z9"),
        namespace(client, "companions", until_gone=True) as where,
    ):
        pods = f"/api/v1/namespaces/{where}/pods"
        await client.create(pods, pod("runs", affinity=_SAME_ZONE, nodeName="n-companions"))
        await client.create(pods, _large("waits", affinity=_SAME_ZONE))
        async with _quick_controller(kubeconfig):
            await _until_asked(client, where, MAX_ADDITIONAL_PER_POD, "three requests of one Pod")
            for each in await _additional(client, where):
                assert each["metadata"]["ownerReferences"][0]["name"] == "waits"
                assert "coLocation" not in each["spec"]
                here = {"key": "zone", "operator": "In", "values": ["z9"]}
                assert here in each["spec"]["requirements"]
            await client.patch(f"{pods}/waits/status", {"status": {"phase": "Succeeded"}})
            await _until_none(client, where, "all of them to go with what the Pod wants")


async def test_pods_that_no_machine_helps_request_none(kubeconfig: dict[str, Path]) -> None:
    """One waits for a volume claim that nobody makes, one behind a scheduling gate; a third one,
    which is their equal but for that, asks.
    """
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}
    async with await admin(kubeconfig) as client, namespace(client, "helpless") as where:
        pods = f"/api/v1/namespaces/{where}/pods"
        await client.create(pods, _large("claims", volumes=[claim]))
        await client.create(pods, _large("gated", schedulingGates=[{"name": "example.com/wait"}]))
        await client.create(pods, _large("asks"))
        async with _quick_controller(kubeconfig):
            await _until_asked(client, where, MAX_ADDITIONAL_PER_POD, "three requests of one Pod")
            for each in await _additional(client, where):
                assert each["metadata"]["ownerReferences"][0]["name"] == "asks"
            await asyncio.sleep(2)
            assert len(await _additional(client, where)) == MAX_ADDITIONAL_PER_POD
