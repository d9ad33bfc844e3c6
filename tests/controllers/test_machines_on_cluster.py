"""Machines that join a real cluster and leave it: credentials, Nodes and UpcomingNodes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bigfleet.api.install import GROUP_VERSION, NODE_NAMESPACE
from bigfleet.api.v1alpha1 import capacity_pb2
from bigfleet.api.v1alpha1.provider_pb2 import MachineState
from bigfleet.api.v1alpha1.shard_pb2 import BootstrapRequest, ShardMessage
from bigfleet.api.wellknown import MACHINE_LABEL
from tests.controllers.operator_rig import operating, until_phase, update
from tests.support.clusters import admin, fake_shard, get, node
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster


async def test_a_machine_joins_stays_and_leaves(kubeconfig: dict[str, Path]) -> None:
    """Blob, UpcomingNode phases, and nothing left of Node and credential at the end."""
    account = f"/api/v1/namespaces/{NODE_NAMESPACE}/serviceaccounts/m-life"
    async with (
        await admin(kubeconfig) as client,
        fake_shard() as (shard, address),
        operating(kubeconfig, address, api_server_for_machines="https://api.example:6443"),
    ):
        shard.order(update("m-life", MachineState.CREATING))
        await until_phase(client, "m-life", "Provisioning")
        shard.order(update("m-life", MachineState.IDLE))
        order = BootstrapRequest(request_id="r-1", cluster_id="c", machine_id="m-life")
        shard.order(ShardMessage(bootstrap_request=order))
        response = await shard.blobs.get()
        assert (response.request_id, response.error, response.ttl_seconds) == ("r-1", "", 600)
        blob = msgspec.json.decode(response.user_data)
        assert blob["apiServer"] == "https://api.example:6443"
        assert "BEGIN CERTIFICATE" in blob["caPem"]
        assert (blob["nodeName"], blob["labels"]) == ("m-life", {MACHINE_LABEL: "m-life"})
        assert await get(client, account) is not None
        shard.order(update("m-life", MachineState.CONFIGURING, labels={"zone": "a"}))
        await until_phase(client, "m-life", "Registered")
        await client.create("/api/v1/nodes", node("m-life", labels=blob["labels"]))
        shard.order(update("m-life", MachineState.CONFIGURED, provider_id="fake://m-life"))
        await until_phase(client, "m-life", "Ready")
        path = f"{GROUP_VERSION}/upcomingnodes/m-life"
        await client.delete(path)  # by somebody else
        shard.order(update("m-life", MachineState.CONFIGURED, provider_id="fake://m-life"))
        await until_phase(client, "m-life", "Ready")
        upcoming = await get(client, path)
        assert upcoming["status"]["nodeRef"] == {"name": "m-life"}
        assert upcoming["status"]["providerID"] == "fake://m-life"
        assert upcoming["spec"]["resources"] == {"cpu": "4"}

        async def no_account() -> bool:
            return await get(client, account) is None

        await eventually(no_account, "the credential to go")
        shard.order(update("m-life", MachineState.DRAINING))
        await until_phase(client, "m-life", "Draining")
        shard.order(update("m-life", MachineState.IDLE))
        await until_phase(client, "m-life", None)
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
        operating(kubeconfig, address),
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
        async with operating(kubeconfig, address):
            assert {"m-away", "m-unwritten"} <= {*(await shard.inquiries.get()).machine_ids}
            shard.order(update("m-away", MachineState.CONFIGURED))
            await until_phase(client, "m-away", "Ready")
        async with operating(kubeconfig, address):
            asked = {*(await shard.inquiries.get()).machine_ids}
            assert "m-stranger" not in asked
            assert {"m-away", "m-unwritten"} <= asked
            shard.order(update("m-away", MachineState.IDLE))
            shard.order(update("m-unwritten", MachineState.SPECULATIVE))

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
        operating(kubeconfig, address),
    ):
        shard.order(update("m-back", MachineState.CONFIGURED))
        await until_phase(client, "m-back", "Ready")
        order = BootstrapRequest(request_id="r-1", cluster_id="c", machine_id="m-back")
        shard.order(ShardMessage(bootstrap_request=order))
        assert (await shard.blobs.get()).error == ""
        await client.create("/api/v1/nodes", node("m-back", labels={MACHINE_LABEL: "m-back"}))
        shard.order(update("m-back", MachineState.IDLE))
        await until_phase(client, "m-back", None)
        assert await get(client, account) is not None
        assert await get(client, "/api/v1/nodes/m-back") is not None
        shard.order(update("m-back", MachineState.CONFIGURED))
        await until_phase(client, "m-back", "Ready")
        shard.order(update("m-back", MachineState.SPECULATIVE))
        await until_phase(client, "m-back", None)
        assert await get(client, "/api/v1/nodes/m-back") is None


async def test_the_node_of_another_machine_is_left_alone(kubeconfig: dict[str, Path]) -> None:
    async with (
        await admin(kubeconfig) as client,
        fake_shard() as (shard, address),
        operating(kubeconfig, address),
    ):
        await client.create("/api/v1/nodes", node("m-foreign"))
        shard.order(update("m-foreign", MachineState.CONFIGURED))
        await until_phase(client, "m-foreign", "Ready")
        shard.order(update("m-foreign", MachineState.SPECULATIVE))
        await until_phase(client, "m-foreign", None)
        assert await get(client, "/api/v1/nodes/m-foreign") is not None
        await client.delete("/api/v1/nodes/m-foreign")
