"""A provider of Cluster API's machines on a real API server, with the rights of the example."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bigfleet.api import transport
from bigfleet.api.v1alpha1.provider_pb2_grpc import CapacityProviderStub
from bigfleet.conformance.check import CheckOutcome
from bigfleet.conformance.subject import Bounds, Subject
from bigfleet.conformance.suite import run_checks
from bigfleet.kube.client import KubeClient
from bigfleet.model.errors import IllegalTransition, InvalidInput, Unavailable
from bigfleet.model.machine import MachineEvent, MachineState
from bigfleet.services.provider.capi.management import ManagementCluster
from tests.services.provider.capi_rig import ELASTIC, OWN, CapiProcess, Rig, rig
from tests.support import cluster_api
from tests.support.clusters import get
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]
CONFIGURE, DRAIN, DELETE = MachineEvent.CONFIGURE, MachineEvent.DRAIN, MachineEvent.DELETE
IDLE, CONFIGURED, FAILED = MachineState.IDLE, MachineState.CONFIGURED, MachineState.FAILED
# Several suites share the machine.
RELAXED = Bounds(answer=10.0, state=60.0, drain=60.0)


@pytest_asyncio.fixture
async def made(kubeconfig: dict[str, Path], tmp_path: Path) -> AsyncIterator[Rig]:
    """The rig of one test."""
    async with rig(kubeconfig["admin"], tmp_path) as found:
        yield found


async def test_it_conforms_to_the_contract_also_when_it_is_killed(made: Rig) -> None:
    """As a process; its only store is the management cluster."""
    process = CapiProcess(made)
    try:
        await process.restart()
        async with transport.channel(process.address) as channel:
            stub = CapacityProviderStub(channel)
            subject = Subject(stub, made.cluster, RELAXED, process.restart)
            found = [result async for result in run_checks(subject)]
            left = await subject.leftover_machines()
    finally:
        await process.kill()
    wrong = {r.check.name: r.observed for r in found if r.outcome is not CheckOutcome.PASSED}
    assert (wrong, left) == ({}, {})
    assert await made.left() == []
    assert "please report it" not in process.log.read_text()


async def test_a_machine_is_cluster_apis_while_it_serves_and_nothing_is_left_of_it(
    made: Rig,
) -> None:
    """It is made from the template, in its failure domain, and joins with its labels."""
    async with made.controller() as provider:
        machine = await made.in_service(provider)
        [found] = await made.machines()
        infrastructure = await get(
            made.admin,
            f"/apis/infrastructure.cluster.x-k8s.io/v1beta2/namespaces/{made.namespace}"
            f"/awsmachines/{ELASTIC}",
        )
        node = made.stand_in.joined[ELASTIC]
        await made.give(provider, DRAIN)
        await made.cluster.remove(ELASTIC)
        await made.until(provider, IDLE)
        left = await made.left()
    assert (found["metadata"]["name"], found["spec"]["clusterName"]) == (ELASTIC, made.cluster.id)
    assert found["spec"]["failureDomain"] == machine.zone
    assert infrastructure["spec"] == {"size": "large"}
    assert infrastructure["metadata"]["labels"]["made-by"] == "m6i-large"
    assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == machine.zone
    assert left == []


async def test_a_host_of_ones_own_is_idle_and_joins_by_the_config_of_its_cluster(
    made: Rig,
) -> None:
    """By Cluster API's KubeadmConfig, against its real schema; it has its taints."""
    made.cluster.id = "east"
    async with made.controller() as provider:
        before = provider.records.get(OWN).machine
        await made.in_service(provider, OWN)
        [found] = await made.machines()
        taints = made.stand_in.joined[OWN]["spec"]["taints"]
        with pytest.raises(IllegalTransition):
            await made.give(provider, DELETE, OWN)
        await made.cluster.remove(OWN)
        await made.give(provider, DRAIN, OWN)
        await made.until(provider, IDLE, OWN)
        left = await made.left()
    assert (before.state, before.host) == (IDLE, OWN)
    assert found["spec"]["bootstrap"]["configRef"]["kind"] == "KubeadmConfig"
    assert found["spec"]["version"] == "v1.36.3"
    assert taints == [{"key": "example.com/own", "value": "", "effect": "NoSchedule"}]
    assert left == []


@pytest.mark.parametrize("requests", range(7))
async def test_a_provider_killed_after_any_request_of_a_join_finishes_it(
    made: Rig, requests: int
) -> None:
    """Whether the order was answered or not: there is one Machine, and nothing is left of it."""
    async with made.controller(requests) as killed:
        try:
            await made.give(killed, CONFIGURE, OWN)
        except Unavailable:
            answered = False
        else:
            answered = True
            await made.killed()
    async with made.controller() as provider:
        if not answered:
            await made.give(provider, CONFIGURE, OWN)
        machine = await made.until(provider, CONFIGURED, OWN)
        assert machine.shard_metadata == {"purpose": "test"}
        assert len(await made.machines()) == 1
        await made.cluster.remove(OWN)
        await made.give(provider, DRAIN, OWN)
        await made.until(provider, IDLE, OWN)
    assert await made.left() == []


async def test_an_order_whose_caller_goes_while_it_is_saved_is_carried_through(
    made: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard that is restarted hangs up in the middle of its orders."""
    async with made.controller() as provider:
        assert made.client is not None
        create = made.client.create

        async def then_gone(path: str, body: Any) -> bytes:
            answer = await create(path, body)
            if path.endswith("/configmaps"):
                monkeypatch.undo()
                raise asyncio.CancelledError
            return answer

        monkeypatch.setattr(made.client, "create", then_gone)
        with pytest.raises(asyncio.CancelledError):
            await made.give(provider, CONFIGURE, OWN)
        await made.until(provider, CONFIGURED, OWN)


@pytest.mark.parametrize("requests", range(1, 9))
async def test_a_provider_killed_after_any_request_of_a_drain_finishes_it(
    made: Rig, requests: int
) -> None:
    """The order was answered, and the next provider takes away what there is."""
    async with made.controller() as provider:
        await made.in_service(provider, OWN)
    async with made.controller(requests) as killed:
        await made.cluster.remove(OWN)
        await made.give(killed, DRAIN, OWN)
        await made.killed()
    async with made.controller() as provider:
        await made.until(provider, IDLE, OWN)
    assert await made.left() == []


async def test_a_machine_whose_pods_stay_is_taken_when_its_grace_is_over(made: Rig) -> None:
    """Cluster API drains its Node, and waits no longer than the order says."""
    async with made.controller() as provider:
        await made.in_service(provider, OWN)
        await made.give(provider, DRAIN, OWN, grace_seconds=5)
        leaving: list[dict[str, Any]] = []

        async def leaves() -> bool:
            found = await made.machines()
            leaving[:] = [each for each in found if "deletionTimestamp" in each["metadata"]]
            return bool(leaving)

        await eventually(leaves, "its Machine to be deleted")
        assert 1 <= leaving[0]["spec"]["deletion"]["nodeDrainTimeoutSeconds"] <= 5
        await made.until(provider, IDLE, OWN)


async def test_a_machine_that_somebody_else_deletes_has_failed_and_is_repaired(made: Rig) -> None:
    """As an interrupted spot instance does; a host of one's own is idle again."""
    async with made.controller(repair_seconds=4.0) as provider:
        await made.in_service(provider, OWN)
        await made.cluster.remove(OWN)
        await made.admin.delete(f"{made.stand_in.machines}/{OWN}")
        machine = await made.until(provider, FAILED, OWN)
        assert "somebody else" in machine.last_error
        assert machine.cluster == made.cluster.id
        machine = await made.until(provider, IDLE, OWN)
    assert (machine.cluster, machine.last_error) == ("", "")
    assert await made.left() == []


async def test_a_machine_that_gets_no_host_in_time_has_failed_with_what_it_waits_for(
    made: Rig,
) -> None:
    made.content["offerings"][1]["boot_timeout_seconds"] = 10.0
    made.stand_in.stuck.add(OWN)
    async with made.controller(repair_seconds=600.0) as provider:
        await made.give(provider, CONFIGURE, OWN)
        machine = await made.until(provider, FAILED, OWN)

        async def gone() -> bool:
            return not await made.machines()

        await eventually(gone, "its Machine to be deleted")
    assert "not Ready within 10 s" in machine.last_error
    assert "InfrastructureReady: no host is available" in machine.last_error


async def test_a_machine_whose_node_has_another_name_has_failed(made: Rig) -> None:
    """BigFleet would not find it."""
    made.stand_in.misnamed.add(OWN)
    async with made.controller(repair_seconds=600.0) as provider:
        await made.give(provider, CONFIGURE, OWN)
        machine = await made.until(provider, FAILED, OWN)
    assert f"its Node is called ip-{OWN}" in machine.last_error


async def test_what_the_management_cluster_forbids_or_rejects_is_told_in_words(made: Rig) -> None:
    """A Role that lacks something, a template that is missing, a Machine that is invalid."""
    elsewhere = made.content["offerings"]
    lacking = {**elsewhere[1], "count": 1, "name": "lacking"}
    lacking["template"] = {**lacking["template"], "name": "nowhere"}
    invalid = {**elsewhere[1], "count": 1, "name": "invalid", "failure_domain": "x" * 300}
    made.content["offerings"] = [*elsewhere, lacking, invalid]
    role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{made.namespace}/roles"
    errors = {}
    async with made.controller(repair_seconds=600.0) as provider:
        for machine_id in ("lacking-0", "invalid-0"):
            await made.give(provider, CONFIGURE, machine_id)
            errors[machine_id] = (await made.until(provider, FAILED, machine_id)).last_error
        rules = (await get(made.admin, f"{role}/{cluster_api.ACCOUNT}"))["rules"]
        less = [each for each in rules if "metal3machines" not in each["resources"]]
        await made.admin.patch(f"{role}/{cluster_api.ACCOUNT}", {"rules": less})
        await made.give(provider, CONFIGURE, OWN)
        errors[OWN] = (await made.until(provider, FAILED, OWN)).last_error
    assert "metal3machinetemplates" in errors["lacking-0"]
    assert '"nowhere" not found' in errors["lacking-0"]
    assert "spec.failureDomain" in errors["invalid-0"]
    assert "correct the template or the offering" in errors["invalid-0"]
    assert "forbidden" in errors[OWN]
    assert "Role of docs/guides/cluster-api.md" in errors[OWN]


async def test_an_order_for_a_cluster_that_cannot_be_joined_is_rejected_and_changes_nothing(
    made: Rig,
) -> None:
    """One that the offerings lack, and one whose bootstrap data is missing."""
    secret = f"/api/v1/namespaces/{made.namespace}/secrets/west-bootstrap"
    async with made.controller() as provider:
        made.cluster.id = "nowhere"
        with pytest.raises(InvalidInput, match="is not one of the offerings' clusters: east, west"):
            await made.give(provider, CONFIGURE, OWN)
        made.cluster.id = "west"
        await made.admin.delete(secret)
        with pytest.raises(InvalidInput, match="cannot read Secret west-bootstrap"):
            await made.give(provider, CONFIGURE, OWN)
        machine = provider.records.get(OWN).machine
    assert (machine.state, machine.cluster) == (IDLE, "")


async def test_a_machine_of_somebody_else_with_the_same_name_is_left_alone(made: Rig) -> None:
    reference = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AWSMachine", "name": "x"}
    spec = {"clusterName": "mine", "bootstrap": {"dataSecretName": "x"}}
    foreign: cluster_api.Object = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine"}
    foreign |= {"metadata": {"name": OWN}, "spec": {**spec, "infrastructureRef": reference}}
    await cluster_api.create(made.admin, made.namespace, foreign)
    async with made.controller(repair_seconds=600.0) as provider:
        await made.give(provider, CONFIGURE, OWN)
        machine = await made.until(provider, FAILED, OWN)
        [found] = await made.machines()
    assert "is not of provider cluster-api" in machine.last_error
    assert "deletionTimestamp" not in found["metadata"]


async def test_of_two_providers_the_second_to_write_reads_what_the_first_has_written(
    made: Rig,
) -> None:
    """Such as one that was believed dead: neither overwrites the other's fencing tokens."""
    async with made.controller() as one, made.controller() as other:
        await made.in_service(one, OWN)
        record = await made.give(other, CONFIGURE, OWN)
        assert record.operation_id == one.records.get(OWN).operation_id
        assert len(await made.machines()) == 1
        token = other.records.fencing_token("shard", OWN)
    assert token is not None
    assert token.sequence == made.sequence


async def test_a_config_of_somebody_else_with_the_same_name_is_left_alone(made: Rig) -> None:
    """What an interrupted order has left is replaced, and nothing else is."""
    made.cluster.id = "east"
    foreign = cluster_api.documents("bootstrap.yaml")[0]
    spec = foreign["spec"]["template"]["spec"]
    foreign = {**foreign, "kind": "KubeadmConfig", "metadata": {"name": OWN}, "spec": spec}
    await cluster_api.create(made.admin, made.namespace, foreign)
    async with made.controller() as provider:
        with pytest.raises(InvalidInput, match="is not of provider cluster-api"):
            await made.give(provider, CONFIGURE, OWN)
    assert await made.left() == [f"kubeadmconfigs/{OWN}"]


async def test_a_cluster_without_cluster_api_is_told_so(made: Rig) -> None:
    """Here one that has nothing but Nodes."""
    async with KubeClient.with_access(made.stand_in.access()) as client:
        with pytest.raises(InvalidInput, match=r"list Machines of cluster\.x-k8s\.io/v1beta2"):
            await ManagementCluster(client, "fleet", "p").check()


async def test_a_provider_without_rights_ends_with_the_reason(made: Rig) -> None:
    """Exit code 2: to start again would not help."""
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{made.namespace}/rolebindings"
    await made.admin.delete(f"{path}/{cluster_api.ACCOUNT}")
    process = CapiProcess(made)
    started = await process.begin()
    try:
        assert await started.wait() == 2
    finally:
        await process.kill()
    assert "give the provider the Role" in process.log.read_text()


async def test_a_machine_in_use_cannot_vanish_from_the_offerings(made: Rig) -> None:
    """Fewer of them may be offered; one in use stays until it is idle."""
    last = "rack1-15"
    async with made.controller() as provider:
        await made.in_service(provider, last)
    made.content["offerings"][1]["count"] = 1
    async with made.controller() as provider:
        ids = {record.machine.id for record in provider.records}
        assert {each for each in ids if each.startswith("rack1")} == {OWN, last}
        del made.content["offerings"][1]
        with pytest.raises(InvalidInput, match="is in use and has no offering"):
            async with made.controller():
                pass
        await made.cluster.remove(last)
        await made.give(provider, DRAIN, last)
        await made.until(provider, IDLE, last)
