"""The operator between a real API server and a shard that is only a session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bigfleet.api.install import GROUP_VERSION, NODE_NAMESPACE
from bigfleet.api.need_codec import need_from_wire
from bigfleet.api.v1alpha1 import capacity_pb2
from bigfleet.api.v1alpha1.capacity_pb2 import ClusterCapacityNeeds
from bigfleet.api.v1alpha1.provider_pb2 import MachineState, Resources
from bigfleet.api.v1alpha1.shard_pb2 import (
    AvailableCapacityUpdate,
    BootstrapRequest,
    DemandStatus,
    NeedStatus,
    NodeStateUpdate,
    ReclaimInstruction,
    RejectedItem,
    ShardMessage,
)
from bigfleet.api.wellknown import MACHINE_LABEL
from bigfleet.controllers import operator
from bigfleet.controllers.operator import available_capacity, rollup
from bigfleet.controllers.operator.available_capacity import availability_name
from bigfleet.kube.client import KubeClient
from tests.support.clusters import (
    FakeShard,
    add_ready_node,
    admin,
    fake_shard,
    get,
    namespace,
    node,
    pod,
    request,
    requests_path,
    role,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster


@asynccontextmanager
async def _operator(kubeconfig: dict[str, Path], address: str, **more: Any) -> AsyncIterator[None]:
    settings = operator.OperatorConfig(
        cluster_id="c",
        shard_addresses=[address],
        kubeconfig=kubeconfig["bigfleet-operator"],
        observe_port=0,
        **{"rollup_seconds": 1.0, "acknowledge_per_second": 200.0, **more},
    )
    async with role(partial(operator.run, settings)):
        yield


async def _rollup_with(shard: FakeShard, cpu: str | None) -> ClusterCapacityNeeds:
    """The next roll-up whose only need sums up to `cpu`, or that has none."""
    async with asyncio.timeout(90):
        while True:
            rollup = await shard.rollups.get()
            if [n.aggregate_resources["cpu"] for n in rollup.needs] == ([cpu] if cpu else []):
                return rollup


def _update(machine_id: str, state: MachineState.ValueType, **more: Any) -> ShardMessage:
    update = NodeStateUpdate(
        supersedes_key=f"node:{machine_id}",
        machine_id=machine_id,
        cluster_id="c",
        state=state,
        node_name=machine_id,
        resources=Resources(resources={"cpu": "4"}),
        **more,
    )
    return ShardMessage(node_state_update=update)


async def _until_phase(client: KubeClient, machine_id: str, phase: str | None) -> None:
    async def reached() -> bool:
        found = await get(client, f"{GROUP_VERSION}/upcomingnodes/{machine_id}")
        return bool((found and found.get("status", {}).get("phase")) == phase)

    await eventually(reached, f"{machine_id} to be {phase}")


async def test_requests_become_a_rollup_and_are_acknowledged_once_it_is_accepted(
    kubeconfig: dict[str, Path],
) -> None:
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "rolled-up") as where,
        fake_shard() as (shard, address),
    ):
        path = requests_path(where)
        await client.create(path, request("early"))
        shard.rejected = "for the test"
        async with _operator(kubeconfig, address):
            assert await shard.hellos.get() == "c"
            await _rollup_with(shard, "1")
            for number in range(3):
                await client.create(path, request(f"late-{number}"))
            await _rollup_with(shard, "4")
            found = (await get(client, path))["items"]
            assert not any("phase" in r.get("status", {}) for r in found)
            shard.rejected = ""

            async def all_acknowledged() -> bool:
                items = (await get(client, path))["items"]
                return all(
                    i.get("status", {}).get("phase") == "Acknowledged"
                    and len(i["status"]["acknowledgedAt"]) == len("2026-01-01T00:00:00.000000Z")
                    for i in items
                )

            await eventually(all_acknowledged, "the acknowledgements")
            await client.delete(path)
            await _rollup_with(shard, None)


async def test_after_a_lost_session_the_whole_demand_is_sent_again(
    kubeconfig: dict[str, Path],
) -> None:
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "sent-again") as where,
        fake_shard() as (shard, address),
    ):
        await client.create(requests_path(where), request("r"))
        async with _operator(kubeconfig, address, rollup_seconds=60.0):
            await _rollup_with(shard, "1")
            shard.hang_up()
            await _rollup_with(shard, "1")
        assert shard.hellos.qsize() == 2
        await client.delete(requests_path(where))


def _daemon_set(name: str, cpu: str, **template: Any) -> dict[str, Any]:
    body = pod(name, **template)
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    del body["spec"]["terminationGracePeriodSeconds"]
    labels = {"app": name}
    return {
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": body["spec"]},
        },
    }


async def _rollup_with_overheads(shard: FakeShard, *cpu: str) -> ClusterCapacityNeeds:
    async with asyncio.timeout(90):
        while True:
            rollup = await shard.rollups.get()
            if sorted(o.resources["cpu"] for o in rollup.node_overheads) == sorted(cpu):
                return rollup


async def test_what_daemon_sets_take_is_in_every_roll_up_and_a_change_is_sent_at_once(
    kubeconfig: dict[str, Path],
) -> None:
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "daemons") as where,
        fake_shard() as (shard, address),
    ):
        path = f"/apis/apps/v1/namespaces/{where}/daemonsets"
        tolerates = {"tolerations": [{"operator": "Exists"}]}
        await client.create(path, _daemon_set("agent", "100m", **tolerates))
        async with _operator(kubeconfig, address, rollup_seconds=3600.0):
            first = await shard.rollups.get()
            assert [dict(o.resources) for o in first.node_overheads] == [
                {"cpu": "100m", "pods": "1"}
            ]
            await client.create(path, _daemon_set("proxy", "200m", **tolerates))
            await _rollup_with_overheads(shard, "300m")
            gpu = {"nodeSelector": {"gpu": "yes"}}
            await client.create(path, _daemon_set("driver", "1", **gpu))
            await _rollup_with_overheads(shard, "300m", "1")
            for name in ("agent", "proxy", "driver"):
                await client.delete(f"{path}/{name}")
            await _rollup_with_overheads(shard)


async def test_acknowledging_can_be_turned_off(kubeconfig: dict[str, Path]) -> None:
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "turned-off") as where,
        fake_shard() as (shard, address),
    ):
        await client.create(requests_path(where), request("r"))
        async with _operator(kubeconfig, address, acknowledge_per_second=0, rollup_seconds=0.1):
            for _ in range(3):
                await _rollup_with(shard, "1")
        [found] = (await get(client, requests_path(where)))["items"]
        assert "status" not in found
        await client.delete(requests_path(where))


async def test_a_machine_joins_stays_and_leaves(kubeconfig: dict[str, Path]) -> None:
    """Blob, UpcomingNode phases, and nothing left of Node and credential at the end."""
    account = f"/api/v1/namespaces/{NODE_NAMESPACE}/serviceaccounts/m-life"
    async with (
        await admin(kubeconfig) as client,
        fake_shard() as (shard, address),
        _operator(kubeconfig, address, api_server_for_machines="https://api.example:6443"),
    ):
        shard.order(_update("m-life", MachineState.CREATING))
        await _until_phase(client, "m-life", "Provisioning")
        shard.order(_update("m-life", MachineState.IDLE))
        order = BootstrapRequest(request_id="r-1", cluster_id="c", machine_id="m-life")
        shard.order(ShardMessage(bootstrap_request=order))
        response = await shard.blobs.get()
        assert (response.request_id, response.error, response.ttl_seconds) == ("r-1", "", 600)
        blob = msgspec.json.decode(response.user_data)
        assert blob["apiServer"] == "https://api.example:6443"
        assert "BEGIN CERTIFICATE" in blob["caPem"]
        assert (blob["nodeName"], blob["labels"]) == ("m-life", {MACHINE_LABEL: "m-life"})
        assert await get(client, account) is not None
        shard.order(_update("m-life", MachineState.CONFIGURING, labels={"zone": "a"}))
        await _until_phase(client, "m-life", "Registered")
        await client.create("/api/v1/nodes", node("m-life", labels=blob["labels"]))
        shard.order(_update("m-life", MachineState.CONFIGURED, provider_id="fake://m-life"))
        await _until_phase(client, "m-life", "Ready")
        upcoming = await get(client, f"{GROUP_VERSION}/upcomingnodes/m-life")
        assert upcoming["status"]["nodeRef"] == {"name": "m-life"}
        assert upcoming["status"]["providerID"] == "fake://m-life"
        assert upcoming["spec"]["resources"] == {"cpu": "4"}

        async def no_account() -> bool:
            return await get(client, account) is None

        await eventually(no_account, "the credential to go")
        shard.order(_update("m-life", MachineState.DRAINING))
        await _until_phase(client, "m-life", "Draining")
        shard.order(_update("m-life", MachineState.IDLE))
        await _until_phase(client, "m-life", None)
        assert await get(client, "/api/v1/nodes/m-life") is None


async def test_a_node_gets_the_labels_that_its_first_pods_are_selected_by(
    kubeconfig: dict[str, Path],
) -> None:
    """Those that a kubelet may set, and none of BigFleet's own labels."""
    given = {
        "team.example/kind": "ml",
        "plain": "",
        "topology.kubernetes.io/zone": "a",
        "node.kubernetes.io/instance-type": "m6i.large",
    }
    withheld = {
        "node-restriction.kubernetes.io/x": "y",
        "node-role.kubernetes.io/control-plane": "",
        "example.k8s.io/x": "y",
        "bigfleet.lucy.sh/heartbeat": "stopped",
        MACHINE_LABEL: "another",
        "no name": "x",
        "odd-value": "a b",
    }
    term = capacity_pb2.NodeSelectorRequirement
    asked = [
        *(term(key=k, operator=term.IN, values=[v]) for k, v in (given | withheld).items()),
        term(key="either", operator=term.IN, values=["a", "b"]),
        term(key="not", operator=term.NOT_IN, values=["a"]),
    ]
    async with (
        await admin(kubeconfig) as client,
        fake_shard() as (shard, address),
        _operator(kubeconfig, address),
    ):
        order = BootstrapRequest(
            request_id="r-1", cluster_id="c", machine_id="m-labels", requirements=asked
        )
        shard.order(ShardMessage(bootstrap_request=order))
        response = await shard.blobs.get()
        assert response.error == ""
        labels = msgspec.json.decode(response.user_data)["labels"]
        assert labels == {**given, MACHINE_LABEL: "m-labels"}
        await client.create("/api/v1/nodes", node("m-labels", labels=labels))
        await client.delete("/api/v1/nodes/m-labels")


async def test_what_left_while_the_operator_was_down_is_cleaned_up(
    kubeconfig: dict[str, Path],
) -> None:
    """Each new session asks after every machine that has a Node or another object here; what it
    then hears removes those objects, and the Nodes of nobody else.
    """
    upcoming = f"{GROUP_VERSION}/upcomingnodes/m-away"
    async with await admin(kubeconfig) as client, fake_shard() as (shard, address):
        await client.create("/api/v1/nodes", node("m-stranger"))
        for name in ("m-away", "m-unwritten"):
            await client.create("/api/v1/nodes", node(name, labels={MACHINE_LABEL: name}))
        async with _operator(kubeconfig, address):
            assert {"m-away", "m-unwritten"} <= {*(await shard.inquiries.get()).machine_ids}
            shard.order(_update("m-away", MachineState.CONFIGURED))
            await _until_phase(client, "m-away", "Ready")
        async with _operator(kubeconfig, address):
            asked = {*(await shard.inquiries.get()).machine_ids}
            assert "m-stranger" not in asked
            assert {"m-away", "m-unwritten"} <= asked
            shard.order(_update("m-away", MachineState.IDLE))
            shard.order(_update("m-unwritten", MachineState.SPECULATIVE))

            async def gone() -> bool:
                nodes = [await get(client, f"/api/v1/nodes/{m}") for m in ("m-away", "m-unwritten")]
                return nodes == [None, None] and await get(client, upcoming) is None

            await eventually(gone, "the Nodes and the UpcomingNode to go")
        assert await get(client, "/api/v1/nodes/m-stranger") is not None
        await client.delete("/api/v1/nodes/m-stranger")


async def test_a_machine_that_joins_again_does_not_count_as_left(
    kubeconfig: dict[str, Path],
) -> None:
    """Idle is what it was before it got its new credential: late news of that harm neither the
    credential nor the new Node.
    """
    account = f"/api/v1/namespaces/{NODE_NAMESPACE}/serviceaccounts/m-back"
    async with (
        await admin(kubeconfig) as client,
        fake_shard() as (shard, address),
        _operator(kubeconfig, address),
    ):
        shard.order(_update("m-back", MachineState.CONFIGURED))
        await _until_phase(client, "m-back", "Ready")
        order = BootstrapRequest(request_id="r-1", cluster_id="c", machine_id="m-back")
        shard.order(ShardMessage(bootstrap_request=order))
        assert (await shard.blobs.get()).error == ""
        await client.create("/api/v1/nodes", node("m-back", labels={MACHINE_LABEL: "m-back"}))
        shard.order(_update("m-back", MachineState.IDLE))
        await _until_phase(client, "m-back", None)
        assert await get(client, account) is not None
        assert await get(client, "/api/v1/nodes/m-back") is not None
        shard.order(_update("m-back", MachineState.CONFIGURED))
        await _until_phase(client, "m-back", "Ready")
        shard.order(_update("m-back", MachineState.SPECULATIVE))
        await _until_phase(client, "m-back", None)
        assert await get(client, "/api/v1/nodes/m-back") is None


async def test_the_node_of_another_machine_is_left_alone(kubeconfig: dict[str, Path]) -> None:
    async with (
        await admin(kubeconfig) as client,
        fake_shard() as (shard, address),
        _operator(kubeconfig, address),
    ):
        await client.create("/api/v1/nodes", node("m-foreign"))
        shard.order(_update("m-foreign", MachineState.CONFIGURED))
        await _until_phase(client, "m-foreign", "Ready")
        shard.order(_update("m-foreign", MachineState.SPECULATIVE))
        await _until_phase(client, "m-foreign", None)
        assert await get(client, "/api/v1/nodes/m-foreign") is not None
        await client.delete("/api/v1/nodes/m-foreign")


async def _add_running_pod(client: KubeClient, pods: str, name: str, node_name: str) -> None:
    """A Pod that counts for budgets, by our own word: when kwok gets to it is not our matter."""
    await client.create(pods, pod(name, node_name))
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "conditions": [ready]}
    await client.patch(f"{pods}/{name}/status", {"status": status})


def _reclaim(name: str, grace_seconds: int) -> ShardMessage:
    return ShardMessage(
        reclaim_instruction=ReclaimInstruction(
            instruction_id="i-1", nodes=[name], grace_period_seconds=grace_seconds
        )
    )


def _budget(minimum: int) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"minAvailable": minimum, "selector": {"matchLabels": {"app": "x"}}},
    }


async def test_a_reclaimed_node_is_cordoned_emptied_within_budgets_and_deleted(
    kubeconfig: dict[str, Path],
) -> None:
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "reclaimed") as where,
        fake_shard() as (shard, address),
        _operator(kubeconfig, address),
    ):
        await add_ready_node(client, "m-full")
        pods = f"/api/v1/namespaces/{where}/pods"
        budgets = f"/apis/policy/v1/namespaces/{where}/poddisruptionbudgets"
        await client.create(budgets, _budget(2))
        for name in ("a", "b"):
            await _add_running_pod(client, pods, name, "m-full")
        shard.order(_reclaim("m-full", 60))
        ack = await shard.acks.get()
        assert (ack.instruction_id, ack.nodes_started) == ("i-1", 1)
        assert (await get(client, "/api/v1/nodes/m-full"))["spec"]["unschedulable"]
        await asyncio.sleep(1)
        assert len((await get(client, pods))["items"]) == 2
        await client.delete(f"{budgets}/b")

        async def gone() -> bool:
            return await get(client, "/api/v1/nodes/m-full") is None

        await eventually(gone, "the Node to be emptied and deleted")
        assert (await get(client, pods))["items"] == []


async def test_a_node_that_joined_again_under_its_name_is_not_emptied(
    kubeconfig: dict[str, Path],
) -> None:
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "joined-again") as where,
        fake_shard() as (shard, address),
        _operator(kubeconfig, address),
    ):
        pods = f"/api/v1/namespaces/{where}/pods"
        await client.create(f"/apis/policy/v1/namespaces/{where}/poddisruptionbudgets", _budget(1))
        await add_ready_node(client, "m-again")
        await _add_running_pod(client, pods, "p", "m-again")
        shard.order(_reclaim("m-again", 60))
        await shard.acks.get()
        await client.delete("/api/v1/nodes/m-again")
        await client.create("/api/v1/nodes", node("m-again"))
        await client.create(pods, pod("new", "m-again"))
        await client.delete(f"/apis/policy/v1/namespaces/{where}/poddisruptionbudgets/b")
        await asyncio.sleep(3)
        new = await get(client, f"{pods}/new")
        assert new is not None
        assert "deletionTimestamp" not in new["metadata"]
        await client.delete("/api/v1/nodes/m-again")


async def test_a_new_operator_goes_on_with_a_reclaim(kubeconfig: dict[str, Path]) -> None:
    until = {"bigfleet.lucy.sh/reclaim-deadline": f"{time.time() + 60:.3f}"}
    annotations = {"kwok.x-k8s.io/node": "fake", **until}
    async with await admin(kubeconfig) as client, fake_shard() as (_, address):
        labels = {MACHINE_LABEL: "m-half"}
        half = node("m-half", labels=labels, annotations=annotations)
        await client.create("/api/v1/nodes", {**half, "spec": {"unschedulable": True}})
        async with _operator(kubeconfig, address):

            async def gone() -> bool:
                return await get(client, "/api/v1/nodes/m-half") is None

            await eventually(gone, "the Node to be deleted")


async def test_a_node_that_is_not_there_can_be_reclaimed_at_once(
    kubeconfig: dict[str, Path],
) -> None:
    async with (
        await admin(kubeconfig),
        fake_shard() as (shard, address),
        _operator(kubeconfig, address),
    ):
        shard.order(_reclaim("m-never", 60))
        assert (await shard.acks.get()).nodes_started == 1


async def test_a_request_has_the_condition_while_its_need_is_short(
    kubeconfig: dict[str, Path],
) -> None:
    """Beside what others say of it, and its being acknowledged takes nothing of that away."""
    others = {
        "type": "AdditionalCapacityRequested",
        "status": "False",
        "reason": "Scheduled",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "told-short") as where,
        fake_shard() as (shard, address),
        _operator(kubeconfig, address),
    ):
        path = requests_path(where)
        await client.create(path, request("r"))
        [need] = (await _rollup_with(shard, "1")).needs
        await client.patch(f"{path}/r/status", {"status": {"conditions": [others]}})
        said = NeedStatus(
            profile_fingerprint=need_from_wire(need, "").profile.fingerprint,
            reason="NoMatchingSupply",
            message="no machine of the fleet has it",
            sizes=need.sizes,
        )

        async def told() -> dict[str, dict[str, str]]:
            conditions = (await get(client, f"{path}/r"))["status"].get("conditions", [])
            return {condition["type"]: condition for condition in conditions}

        async def is_short(status: str) -> bool:
            return (await told()).get("CapacityShort", {}).get("status") == status

        shard.order(ShardMessage(demand_status=DemandStatus(short=[said])))
        await eventually(lambda: is_short("True"), "the condition")
        found = await told()
        assert found["CapacityShort"]["reason"] == "NoMatchingSupply"
        assert found["CapacityShort"]["message"] == "no machine of the fleet has it"
        assert found["AdditionalCapacityRequested"]["reason"] == "Scheduled"
        shard.order(ShardMessage(demand_status=DemandStatus()))
        await eventually(lambda: is_short("False"), "the condition to be taken back")
        assert (await told())["CapacityShort"]["reason"] == "Satisfied"
        assert (await get(client, f"{path}/r"))["status"]["phase"] == "Acknowledged"
        await client.delete(path)


@dataclass(frozen=True)
class ShortConditionReader:
    """Reads the condition CapacityShort of the requests at `path`, with their phases."""

    client: KubeClient
    path: str

    async def get(self, name: str) -> dict[str, str]:
        status = (await get(self.client, f"{self.path}/{name}")).get("status", {})
        conditions = {each["type"]: each for each in status.get("conditions", [])}
        return {**conditions.get("CapacityShort", {}), "phase": status.get("phase", "")}

    async def has(self, name: str, **wanted: str) -> bool:
        return (await self.get(name)).items() >= wanted.items()


async def test_a_rejected_request_reports_why_and_others_are_acknowledged(
    kubeconfig: dict[str, Path],
) -> None:
    """Until a roll-up is accepted as a whole; meanwhile it is not acknowledged."""
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "left-out") as where,
        fake_shard() as (shard, address),
    ):
        path = requests_path(where)
        shard.rejected_items = [
            RejectedItem(index=0, why="300000 bytes are more than one need may take")
        ]
        await client.create(path, request("a", priority=1000))
        await client.create(path, request("b"))
        short = ShortConditionReader(client, path)

        async with _operator(kubeconfig, address):
            [first, _] = (await shard.rollups.get()).needs
            odd, plain = ("a", "b") if first.priority else ("b", "a")
            rejected = {"status": "True", "reason": "Rejected", "phase": ""}
            await eventually(lambda: short.has(odd, **rejected), "the condition")
            assert "300000 bytes are more" in (await short.get(odd))["message"]
            await eventually(lambda: short.has(plain, phase="Acknowledged"), "the other's phase")
            assert await short.has(odd, **rejected)
            shard.rejected_items = []
            shard.order(ShardMessage(demand_status=DemandStatus()))
            await client.create(path, request("c"))
            satisfied = {"status": "False", "reason": "Satisfied", "phase": "Acknowledged"}
            await eventually(lambda: short.has(odd, **satisfied), "the condition to be taken back")
        await client.delete(path)


async def test_an_invalid_request_reports_why_until_it_is_fixed(
    kubeconfig: dict[str, Path],
) -> None:
    """The API server admits an amount that no machine and no sum can have; others go on."""
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "senseless") as where,
        fake_shard() as (shard, address),
    ):
        path = requests_path(where)
        short = ShortConditionReader(client, path)
        huge = {"cpu": "1000000000000", "pods": "1"}
        await client.create(path, request("huge", resources=huge))
        await client.create(path, request("plain"))

        async with _operator(kubeconfig, address):
            await _rollup_with(shard, "1")
            rejected = {"status": "True", "reason": "Invalid", "phase": ""}
            await eventually(lambda: short.has("huge", **rejected), "the condition")
            assert "cpu" in (await short.get("huge"))["message"]
            await eventually(lambda: short.has("plain", phase="Acknowledged"), "the other's phase")
            assert "status" not in await short.get("plain")
            await client.create(path, request("later", resources=huge))
            await eventually(lambda: short.has("later", **rejected), "a later one's condition")
            shard.order(ShardMessage(demand_status=DemandStatus()))
            sane = {"spec": {"resources": {"cpu": "2"}}}
            await client.patch(f"{path}/huge", sane)
            await _rollup_with(shard, "3")
            satisfied = {"status": "False", "reason": "Satisfied", "phase": "Acknowledged"}
            await eventually(
                lambda: short.has("huge", **satisfied), "the condition to be taken back"
            )
        await client.delete(path)


async def test_requests_beyond_the_message_size_report_it_and_those_in_effect_do_not(
    kubeconfig: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And likewise those of a roll-up that the shard rejects as a whole."""
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "too-many") as where,
        fake_shard() as (shard, address),
    ):
        path = requests_path(where)
        short = ShortConditionReader(client, path)
        await client.create(path, request("in-force"))

        async with _operator(kubeconfig, address):
            await eventually(lambda: short.has("in-force", phase="Acknowledged"), "the phase")
            monkeypatch.setattr(rollup, "MAX_ROLLUP_BYTES", 10)
            await client.create(path, request("unsent"))
            unsent = {"status": "True", "reason": "RollUpTooLarge", "phase": ""}
            await eventually(lambda: short.has("unsent", **unsent), "the condition")
            assert "exceed the limit of 10" in (await short.get("unsent"))["message"]
            shard.rejected = "12000 needs are more than 10000"
            monkeypatch.setattr(rollup, "MAX_ROLLUP_BYTES", 10**6)
            rejected = {"status": "True", "reason": "RollUpRejected"}
            await eventually(lambda: short.has("unsent", **rejected), "the other reason")
            assert (await short.get("unsent"))["message"] == shard.rejected
            assert "status" not in await short.get("in-force")
            shard.rejected = ""
            shard.order(ShardMessage(demand_status=DemandStatus()))
            satisfied = {"status": "False", "reason": "Satisfied", "phase": "Acknowledged"}
            await eventually(
                lambda: short.has("unsent", **satisfied), "the condition to be taken back"
            )
        await client.delete(path)


async def test_a_hint_of_the_shard_becomes_an_object(kubeconfig: dict[str, Path]) -> None:
    """And the next one replaces it, also when nothing is available any more."""
    update = AvailableCapacityUpdate(
        supersedes_key="capacity:x",
        resources=Resources(resources={"cpu": "4"}),
        available_count=2,
        confidence=AvailableCapacityUpdate.HIGH,
        cost_per_hour=0.1,
    )
    path = f"{GROUP_VERSION}/availablecapacities/{availability_name('capacity:x')}"
    async with (
        await admin(kubeconfig) as client,
        fake_shard() as (shard, address),
        _operator(kubeconfig, address),
    ):
        shard.order(ShardMessage(available_capacity=update))

        async def published(availability: str) -> bool:
            found = await get(client, path)
            return found is not None and found["spec"]["availability"] == availability

        await eventually(lambda: published("High"), "the hint")
        nothing = AvailableCapacityUpdate(
            supersedes_key="capacity:x", confidence=AvailableCapacityUpdate.NONE
        )
        shard.order(ShardMessage(available_capacity=nothing))
        await eventually(lambda: published("None"), "the hint that there is nothing left")


def _hint(key: str) -> ShardMessage:
    confidence = AvailableCapacityUpdate.NONE
    return ShardMessage(
        available_capacity=AvailableCapacityUpdate(supersedes_key=key, confidence=confidence)
    )


async def test_a_hint_is_deleted_when_it_is_withdrawn_or_not_repeated(
    kubeconfig: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each profile that was ever requested would leave an object behind."""
    monkeypatch.setattr(available_capacity, "RESEND_TIMEOUT_SECONDS", 2.0)
    path = f"{GROUP_VERSION}/availablecapacities"
    async with await admin(kubeconfig) as client, fake_shard() as (shard, address):

        async def there(*keys: str) -> bool:
            found = {item["metadata"]["name"] for item in (await get(client, path))["items"]}
            wanted = {availability_name(f"capacity:{key}") for key in "abc"}
            return found & wanted == {availability_name(f"capacity:{key}") for key in keys}

        async with _operator(kubeconfig, address):
            for key in "abc":
                shard.order(_hint(f"capacity:{key}"))
            await eventually(partial(there, "a", "b", "c"), "three hints")
            withdrawn = AvailableCapacityUpdate(supersedes_key="capacity:a", withdrawn=True)
            shard.order(ShardMessage(available_capacity=withdrawn))
            await eventually(partial(there, "b", "c"), "the withdrawn one to go")
        body = {"apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "AvailableCapacity"}
        spec = {"availability": "None", "availableCount": 0, "cost": "0", "resources": {}}
        await client.create(path, {**body, "metadata": {"name": "by-hand"}, "spec": spec})
        async with _operator(kubeconfig, address):
            shard.order(_hint("capacity:b"))
            await eventually(partial(there, "b"), "the one that nobody repeated to go")
        assert await get(client, f"{path}/by-hand") is not None
        await client.delete(path)


async def test_each_session_reports_which_nodes_are_being_drained(
    kubeconfig: dict[str, Path],
) -> None:
    """A shard that lost its disk has no record of drains; the annotated Nodes do."""
    async with (
        await admin(kubeconfig) as client,
        namespace(client, "being-emptied") as where,
        fake_shard() as (shard, address),
    ):
        pods, budgets = f"/api/v1/namespaces/{where}/pods", "poddisruptionbudgets"
        await client.create(f"/apis/policy/v1/namespaces/{where}/{budgets}", _budget(2))
        for name in ("m-emptied", "m-wanted-back"):
            body = node(name, labels={MACHINE_LABEL: name, "kubernetes.io/hostname": name})
            await client.create("/api/v1/nodes", body)
            await _add_running_pod(client, pods, f"on-{name}", name)
        async with _operator(kubeconfig, address):
            await shard.inquiries.get()
            for name in ("m-emptied", "m-wanted-back"):
                shard.order(_reclaim(name, 60))
                await shard.acks.get()
        await client.patch("/api/v1/nodes/m-wanted-back", {"spec": {"unschedulable": False}})
        async with _operator(kubeconfig, address):
            told = (await shard.inquiries.get()).drains
        assert [each.machine_id for each in told] == ["m-emptied"]
        assert 30 < told[0].seconds_left <= 60
        await client.delete(f"/apis/policy/v1/namespaces/{where}/{budgets}/b")
        for name in ("m-emptied", "m-wanted-back"):
            await client.delete(f"/api/v1/nodes/{name}")
