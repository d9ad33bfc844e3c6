"""The disruption of releasing machines, assessed on a real control plane, and reclaims."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.v1alpha1.shard_pb2 import (
    BootstrapRequest,
    DisruptionInquiry,
    DisruptionReport,
    MachineDisruption,
    ReclaimAck,
    ReclaimInstruction,
    ShardMessage,
)
from bigfleet.controllers.operator import disruption_reviews
from bigfleet.controllers.operator import role as operator
from bigfleet.controllers.operator.disruption_reviews import FIT_UNKNOWN
from bigfleet.controllers.pod_controller import role as pod_controller
from bigfleet.kube.client import KubeClient
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.observe import metrics
from tests.support.clusters import (
    FakeShard,
    add_ready_node,
    admin,
    fake_shard,
    get,
    namespace,
    pod,
    ready_nodes,
    role,
)
from tests.support.cpu_time import slowness
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

_REVIEWS = f"{GROUP_VERSION}/disruptionreviews"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator waits for an answer to its review however busy this machine is."""
    monkeypatch.setattr(disruption_reviews, "_REVIEW_SECONDS", 60.0)


@asynccontextmanager
async def _operator(kubeconfig: dict[str, Path]) -> AsyncIterator[FakeShard]:
    """An operator whose shard the test plays."""
    async with fake_shard() as (shard, address):
        settings = operator.OperatorConfig(
            cluster_id="c",
            shard_addresses=[address],
            kubeconfig=kubeconfig["bigfleet-operator"],
            observe_port=0,
        )
        async with role(partial(operator.run, settings)):
            await shard.hellos.get()
            yield shard


@asynccontextmanager
async def _pod_controller(kubeconfig: dict[str, Path], *ignored: str) -> AsyncIterator[None]:
    settings = pod_controller.PodControllerConfig(
        kubeconfig["bigfleet-pod-controller"], observe_port=0, ignored_namespaces=ignored
    )
    async with role(partial(pod_controller.run, settings)):
        yield


async def _ask(shard: FakeShard, *machines: str, most: int = 3) -> DisruptionReport:
    inquiry = DisruptionInquiry(inquiry_id="q", machine_ids=machines, max_machines=most)
    shard.order(ShardMessage(disruption_inquiry=inquiry))
    async with asyncio.timeout(60):
        return await shard.reports.get()


def _instruction(name: str, **more: Any) -> ReclaimInstruction:
    return ReclaimInstruction(instruction_id=name, nodes=[name], grace_period_seconds=60, **more)


async def _reclaim(shard: FakeShard, name: str, **more: Any) -> ReclaimAck:
    shard.order(ShardMessage(reclaim_instruction=_instruction(name, **more)))
    async with asyncio.timeout(60):
        return await shard.acks.get()


def _about(report: DisruptionReport, machine: str) -> MachineDisruption:
    [found] = [each for each in report.machines if each.machine_id == machine]
    return found


def _deployment(
    name: str, replicas: int, nodes: Sequence[str], cpu: str = "100m", **annotations: str
) -> dict[str, Any]:
    """Pods that run on these Nodes alone."""
    template = pod("t", restartPolicy="Always", affinity=_on(*nodes))
    template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    template["metadata"] = {"labels": {"app": name}, "annotations": annotations}
    del template["apiVersion"], template["kind"]
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
        },
    }


def _on(*nodes: str) -> dict[str, Any]:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


async def _until_bound(client: KubeClient, where: str, count: int) -> None:
    async def bound() -> bool:
        pods = (await get(client, f"/api/v1/namespaces/{where}/pods"))["items"]
        return sum("nodeName" in each["spec"] for each in pods) == count

    await eventually(bound, f"{count} pods to be bound")


async def _is_as_before(client: KubeClient, name: str) -> bool:
    found = await get(client, f"/api/v1/nodes/{name}")
    marks = [a for a in found["metadata"].get("annotations", {}) if a.startswith("bigfleet")]
    return not found["spec"].get("unschedulable") and not marks


async def _fill(client: KubeClient, where: str, count: int, nodes: Sequence[str]) -> None:
    """So many bound pods on the Nodes. They have a controller, but none that acts: having real ones
    create, bind and count thousands would take most of the time.
    """
    maps = f"/api/v1/namespaces/{where}/configmaps"
    owner = msgspec.json.decode(await client.create(maps, {"metadata": {"name": "owner"}}))
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    numbers = iter(range(count))

    async def add() -> None:
        for number in numbers:
            body = pod(f"p-{number}", nodes[number % len(nodes)], affinity=_on(*nodes))
            body["metadata"]["ownerReferences"] = [reference]
            body["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "200m"
            await client.create(f"/api/v1/namespaces/{where}/pods", body)

    await asyncio.gather(*(add() for _ in range(16)))


@pytest.mark.alone
async def test_with_two_thousand_pods_the_best_machines_are_found_within_a_second(
    kubeconfig: dict[str, Path],
) -> None:
    """The empty ones first, then one whose pods find room; nothing of the question is left. Pods
    that ask for nothing, as their namespace is ignored, take room all the same.
    """
    names = [f"m-many-{number:02d}" for number in range(24)]
    async with (
        await admin(kubeconfig) as client,
        ready_nodes(client, *names, cpu="64"),
        namespace(client, "many", until_gone=True) as where,
    ):
        await _fill(client, where, 2000, names[:22])
        async with _pod_controller(kubeconfig, where), _operator(kubeconfig) as shard:
            await _ask(shard)  # everything is listed by now
            took = []
            for _ in range(3):
                started = time.monotonic()
                report = await _ask(shard)
                took.append(time.monotonic() - started)
            found = report.machines
            assert {each.machine_id for each in found[:2]} == set(names[22:])
            assert [each.pods > 0 for each in found] == [False, False, True]
            assert not any(each.blocked for each in found)
            assert min(took) < slowness(), took
        assert (await get(client, _REVIEWS))["items"] == []
        await client.delete(f"/api/v1/namespaces/{where}/pods", {"gracePeriodSeconds": 0})


async def test_machines_that_must_not_be_drained_report_why(kubeconfig: dict[str, Path]) -> None:
    """A budget, an annotation, a pod without a controller; a Job's pods are counted as such."""
    names = ["m-budget", "m-mark", "m-bare", "m-job", "m-room"]
    async with (
        await admin(kubeconfig) as client,
        ready_nodes(client, *names),
        namespace(client, "blocked", until_gone=True) as where,
    ):
        deployments = f"/apis/apps/v1/namespaces/{where}/deployments"
        marks = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
        await client.create(deployments, _deployment("budget", 2, ["m-budget"]))
        await client.create(deployments, _deployment("mark", 1, ["m-mark"], **marks))
        await client.create(f"/api/v1/namespaces/{where}/pods", pod("bare", "m-bare"))
        job = {
            "metadata": {"name": "job"},
            "spec": {"template": {"spec": pod("t", affinity=_on("m-job"))["spec"]}},
        }
        job["spec"]["template"]["spec"]["restartPolicy"] = "Never"  # type: ignore[index]
        await client.create(f"/apis/batch/v1/namespaces/{where}/jobs", job)
        budget = {
            "metadata": {"name": "b"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "budget"}}},
        }
        await client.create(f"/apis/policy/v1/namespaces/{where}/poddisruptionbudgets", budget)
        await _until_bound(client, where, 5)
        async with _operator(kubeconfig) as shard:
            report = await _ask(shard, *names, "m-unknown", most=10)
        assert report.machines[0].machine_id == "m-room"
        assert len(report.machines) == 5
        why = {each.machine_id: each.blocked for each in report.machines}
        assert "2 pods match budget blocked/b, which allows" in why["m-budget"]
        assert "is annotated cluster-autoscaler.kubernetes.io/safe-to-evict=false" in why["m-mark"]
        assert why["m-bare"] == "pod blocked/bare has no controller to recreate it"
        assert why["m-job"] == FIT_UNKNOWN
        assert _about(report, "m-job").batch_pods == 1


async def test_without_a_pod_controller_only_empty_machines_are_known_to_be_free_to_go(
    kubeconfig: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disruption_reviews, "_REVIEW_SECONDS", 0.5)
    async with (
        await admin(kubeconfig) as client,
        ready_nodes(client, "m-used", "m-empty"),
        namespace(client, "nobody-knows", until_gone=True) as where,
        _operator(kubeconfig) as shard,
    ):
        deployments = f"/apis/apps/v1/namespaces/{where}/deployments"
        await client.create(deployments, _deployment("web", 1, ["m-used"]))
        await _until_bound(client, where, 1)
        report = await _ask(shard, "m-used", "m-empty")
        assert [each.machine_id for each in report.machines] == ["m-empty", "m-used"]
        assert [each.blocked for each in report.machines] == ["", FIT_UNKNOWN]


@pytest.mark.usefixtures("patient")
async def test_a_refused_reclaim_leaves_the_node_and_its_pods_as_they_were(
    kubeconfig: dict[str, Path],
) -> None:
    """Refused because it costs more than allowed, or because the pods do not fit elsewhere."""
    async with (
        await admin(kubeconfig) as client,
        ready_nodes(client, "m-dear", "m-other"),
        namespace(client, "refused", until_gone=True) as where,
        _pod_controller(kubeconfig),
        _operator(kubeconfig) as shard,
    ):
        both = ["m-dear", "m-other"]
        deployments = f"/apis/apps/v1/namespaces/{where}/deployments"
        await client.create(deployments, _deployment("web", 3, ["m-dear"]))
        await _until_bound(client, where, 3)

        async def refused(words: str, max_cost: float) -> bool:
            """Whether that is why; it is refused even before the pod controller sees it all."""
            ack = await _reclaim(shard, "m-dear", max_cost=max_cost)
            assert ack.refused
            assert ack.nodes_started == 0
            assert await _is_as_before(client, "m-dear")
            return ack.refused == words

        why = "m-dear: a pod of namespace refused does not fit on any other node"
        await eventually(lambda: refused(why, 100.0), "a reclaim to be refused for want of room")
        await client.delete(f"{deployments}/web")
        await _until_bound(client, where, 0)
        await client.create(deployments, _deployment("roams", 3, both, "1"))
        await _until_bound(client, where, 3)
        found = (await get(client, f"/api/v1/namespaces/{where}/pods"))["items"]
        here = [each for each in found if each["spec"]["nodeName"] == "m-dear"]
        cost = f"evicting {len(here)} pods would cost {len(here)}, more than 0.5"
        await eventually(lambda: refused(cost, 0.5), "a reclaim to be refused for its cost")
        for each in found:
            again = await get(client, f"/api/v1/namespaces/{where}/pods/{each['metadata']['name']}")
            assert again["metadata"]["uid"] == each["metadata"]["uid"]
            assert "deletionTimestamp" not in again["metadata"]
        ack = await _reclaim(shard, "m-dear", max_cost=float(len(here)))
        assert (ack.refused, ack.nodes_started) == ("", 1)

        async def gone() -> bool:
            return await get(client, "/api/v1/nodes/m-dear") is None

        await eventually(gone, "the Node to be emptied and deleted")


async def test_for_a_gang_that_has_moved_only_a_machine_that_runs_its_pods_is_drained(
    kubeconfig: dict[str, Path],
) -> None:
    """It may have been counted on a machine that kube-scheduler never chose for it."""
    async with (
        await admin(kubeconfig) as client,
        ready_nodes(client, "m-gang", "m-others"),
        namespace(client, "gang-moved", until_gone=True) as where,
        _pod_controller(kubeconfig),
        _operator(kubeconfig) as shard,
    ):
        deployments = f"/apis/apps/v1/namespaces/{where}/deployments"
        gang = _deployment("gang", 2, ["m-gang"])
        together = {"topologyKey": HOSTNAME_LABEL, "labelSelector": gang["spec"]["selector"]}
        gang["spec"]["template"]["spec"]["affinity"]["podAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": [together]
        }
        await client.create(deployments, gang)
        await client.create(deployments, _deployment("others", 1, ["m-others"]))
        await _until_bound(client, where, 3)
        group = f'["{where}","{HOSTNAME_LABEL}",[["app","In",["gang"]]]]'
        async with asyncio.timeout(60):
            while group not in {need.group for need in (await shard.rollups.get()).needs}:
                pass
        ack = await _reclaim(shard, "m-others", gang=group)
        assert ack.refused == f"no pod of {group} runs there"
        assert await _is_as_before(client, "m-others")
        ack = await _reclaim(shard, "m-gang", gang=group)
        assert (ack.refused, ack.nodes_started) == ("", 1)


@pytest.mark.alone  # on a busy machine they come one by one
async def test_reclaims_that_come_together_share_their_review(kubeconfig: dict[str, Path]) -> None:
    """Twenty that waited for a review each would be refused, as the last wait too long; and what
    each could give back alone they cannot all give back.
    """
    leaving, staying = [f"m-leaving-{number:02d}" for number in range(20)], ["m-a", "m-b"]
    async with (
        await admin(kubeconfig) as client,
        ready_nodes(client, *leaving),
        ready_nodes(client, *staying, cpu="4"),
        namespace(client, "together", until_gone=True) as where,
        _pod_controller(kubeconfig),
        _operator(kubeconfig) as shard,
    ):
        deployments = f"/apis/apps/v1/namespaces/{where}/deployments"
        for name in staying:
            await client.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
        for name in leaving:
            on = _deployment(name, 1, [name, *staying], "500m")
            await client.create(deployments, on)
        await _until_bound(client, where, 20)
        for name in staying:
            await client.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": False}})

        async def seen() -> bool:
            verdicts = await _reviewed(client, leaving)
            return [each["fits"] for each in verdicts].count(True) == 16

        await eventually(seen, "the room on the other Nodes to be seen")
        before = _reviews_answered()
        for name in leaving:
            shard.order(ShardMessage(reclaim_instruction=_instruction(name, max_cost=9.0)))
        async with asyncio.timeout(60):
            acks = [await shard.acks.get() for _ in leaving]
        assert _reviews_answered() - before <= 5
        # Sixteen pods of half a CPU fit on two Nodes of four CPUs.
        started = sum(ack.nodes_started for ack in acks)
        assert 15 <= started <= 16, [ack.refused for ack in acks if ack.refused]
        assert all("does not fit on any other node" in ack.refused for ack in acks if ack.refused)


@pytest.mark.usefixtures("patient")
async def test_a_review_counts_with_the_drains_that_were_just_allowed(
    kubeconfig: dict[str, Path],
) -> None:
    """However late the pod controller, which the test plays, sees their Nodes being drained; those
    of refused reclaims stay as they are, and a machine that joins again is as good as any other.
    """
    names = ["m-first", "m-second", "m-costly", "m-last"]
    async with (
        await admin(kubeconfig) as client,
        ready_nodes(client, *names),
        namespace(client, "overlap", until_gone=True) as where,
        _operator(kubeconfig) as shard,
    ):
        await _fill(client, where, 4, names)

        def order(name: str, max_cost: float = 9.0) -> None:
            shard.order(ShardMessage(reclaim_instruction=_instruction(name, max_cost=max_cost)))

        async def outcome() -> bool:
            async with asyncio.timeout(60):
                return not (await shard.acks.get()).refused

        order("m-first")
        first = await _open_review(client)
        order("m-second")
        asked = {"maxNodes": 1, "nodes": ["m-first"], "preferred": [], "reclaiming": []}
        assert first["spec"] == asked
        await _answer(client, first, fits=True)
        second = await _open_review(client)
        assert await outcome()
        assert (second["spec"]["nodes"], second["spec"]["reclaiming"]) == (
            ["m-second"],
            ["m-first"],
        )
        await _answer(client, second, fits=False)
        assert not await outcome()
        order("m-costly", 0.5)
        costly = await _open_review(client)
        assert costly["spec"]["reclaiming"] == ["m-first"]
        await _answer(client, costly, fits=True)
        assert not await outcome()
        order("m-last")
        last = await _open_review(client)
        assert last["spec"]["reclaiming"] == ["m-first"]
        await _answer(client, last, fits=True)
        assert await outcome()
        shard.order(ShardMessage(disruption_inquiry=DisruptionInquiry(inquiry_id="q")))
        inquiry = await _open_review(client)
        assert inquiry["spec"]["reclaiming"] == ["m-first", "m-last"]
        await _answer(client, inquiry, fits=True)
        joins = BootstrapRequest(request_id="r", cluster_id="c", machine_id="m-first")
        shard.order(ShardMessage(bootstrap_request=joins))
        async with asyncio.timeout(60):
            assert (await shard.blobs.get()).error == ""
        shard.order(ShardMessage(disruption_inquiry=DisruptionInquiry(inquiry_id="q")))
        inquiry = await _open_review(client)
        assert inquiry["spec"]["reclaiming"] == ["m-last"]


async def _open_review(client: KubeClient) -> dict[str, Any]:
    """The review that waits for its answer."""
    waiting: list[dict[str, Any]] = []

    async def asked() -> bool:
        found = (await get(client, _REVIEWS))["items"]
        waiting[:] = [each for each in found if "status" not in each]
        return bool(waiting)

    await eventually(asked, "a review")
    [review] = waiting
    return review


async def _answer(client: KubeClient, review: dict[str, Any], *, fits: bool) -> None:
    """What the pod controller would say of the Nodes, each with one pod."""
    verdict = {"pods": 1, "cost": 1.0, "fits": fits, "message": "" if fits else "no place"}
    nodes = [{"name": name, **verdict} for name in review["spec"]["nodes"]]
    status = {"observedAt": "2026-01-01T00:00:00Z", "nodes": nodes}
    path = f"{_REVIEWS}/{review['metadata']['name']}/status"
    await client.patch(path, {"status": status})


async def _reviewed(client: KubeClient, nodes: Sequence[str]) -> list[dict[str, Any]]:
    """The pod controller's verdicts on these Nodes."""
    body = {
        "apiVersion": "bigfleet.lucy.sh/v1alpha1",
        "kind": "DisruptionReview",
        "metadata": {"name": "by-hand"},
        "spec": {"maxNodes": len(nodes), "nodes": list(nodes)},
    }
    await client.create(_REVIEWS, body)
    status: dict[str, Any] = {}

    async def answered() -> bool:
        status.update((await get(client, f"{_REVIEWS}/by-hand")).get("status", {}))
        return "observedAt" in status

    await eventually(answered, "the review to be answered")
    await client.delete(f"{_REVIEWS}/by-hand")
    found: list[dict[str, Any]] = status["nodes"]
    return found


def _reviews_answered() -> float:
    [family] = metrics.pod_controller_review_seconds.collect()
    return sum(each.value for each in family.samples if each.name.endswith("_count"))


async def test_a_users_cordon_outlives_a_refused_reclaim(
    kubeconfig: dict[str, Path],
) -> None:
    async with (
        await admin(kubeconfig) as client,
        ready_nodes(client, "m-cordoned"),
        namespace(client, "cordoned", until_gone=True) as where,
        _operator(kubeconfig) as shard,
    ):
        await client.create(f"/api/v1/namespaces/{where}/pods", pod("p", "m-cordoned"))
        path = "/api/v1/nodes/m-cordoned"
        await client.patch(path, {"spec": {"unschedulable": True}})
        ack = await _reclaim(shard, "m-cordoned", max_cost=9.0)
        assert "has no controller" in ack.refused
        found = await get(client, path)
        assert found["spec"]["unschedulable"]
        assert not any("bigfleet" in mark for mark in found["metadata"]["annotations"])


async def test_a_foreign_node_is_not_drained(kubeconfig: dict[str, Path]) -> None:
    async with await admin(kubeconfig) as client, _operator(kubeconfig) as shard:
        for name, machine in (("m-none", None), ("m-two", "m-one")):
            await add_ready_node(client, name)
            labels = {"metadata": {"labels": {"bigfleet.lucy.sh/machine": machine}}}
            await client.patch(f"/api/v1/nodes/{name}", labels)
            ack = await _reclaim(shard, name)
            assert ack.nodes_started == 0
            assert f"node {name} " in ack.refused
            assert await _is_as_before(client, name)
            await client.delete(f"/api/v1/nodes/{name}")


async def test_the_cordon_of_a_previous_operator_is_removed(
    kubeconfig: dict[str, Path],
) -> None:
    """It stopped during the assessment of a reclaim; no drain had started."""
    async with await admin(kubeconfig) as client, ready_nodes(client, "m-looked-at"):
        marks = {"metadata": {"annotations": {"bigfleet.lucy.sh/reclaim-review": "true"}}}
        path = "/api/v1/nodes/m-looked-at"
        await client.patch(path, {**marks, "spec": {"unschedulable": True}})
        async with _operator(kubeconfig):
            await eventually(lambda: _is_as_before(client, "m-looked-at"), "the cordon to go")


async def test_stale_reviews_are_removed(
    kubeconfig: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disruption_reviews, "_STALE_SECONDS", 0.0)
    monkeypatch.setattr(disruption_reviews, "_SWEEP_SECONDS", 0.1)
    head = {"apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "DisruptionReview"}
    async with await admin(kubeconfig) as client:
        old = {**head, "metadata": {"name": "old"}, "spec": {"maxNodes": 1}}
        await client.create(_REVIEWS, old)
        async with _operator(kubeconfig):

            async def gone() -> bool:
                return await get(client, f"{_REVIEWS}/old") is None

            await eventually(gone, "the review that nobody waits for")
