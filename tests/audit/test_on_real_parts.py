"""Audits of real parts: provider, shards, coordinator, operator and API server."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bigfleet.adapters.coordinator.client import LeaderClient
from bigfleet.adapters.coordinator.grpc import GrpcCoordinator
from bigfleet.adapters.host.instant import InstantHost
from bigfleet.adapters.provider.grpc import GrpcProvider
from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.v1alpha1 import coordinator_pb2, shard_pb2
from bigfleet.api.wellknown import MACHINE_LABEL
from bigfleet.audit.collect import Sources, observe
from bigfleet.audit.compare import compare
from bigfleet.audit.differences import Findings, Kind, settle
from bigfleet.controllers.operator import available_capacity
from bigfleet.controllers.operator.node_types import node_path
from bigfleet.kube.client import KubeClient
from bigfleet.model.machine import MachineState
from bigfleet.services.coordinator import role as coordinator_role
from bigfleet.services.coordinator.config import CoordinatorConfig
from bigfleet.services.provider.role import serving as provider_serving
from bigfleet.services.shard.fleet.ownership import Ownership
from controlplane.request import Binaries
from tests.controllers.operator_rig import operating, until_phase
from tests.support.clusters import (
    add_ready_node,
    admin,
    namespace,
    node,
    pod,
    request,
    requests_path,
)
from tests.support.ports import free_address
from tests.support.providers import settings, write_inventory
from tests.support.shard_rig import FakeOperator, Rig, need, shard
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

_K, _S = Kind, MachineState
_PAUSE_SECONDS = 1.0
_DEADLINE_SECONDS = 60.0


async def audit(sources: Sources) -> Findings:
    """Two observations, compared."""
    first = compare(await observe(sources))
    await asyncio.sleep(_PAUSE_SECONDS)
    return settle(first, compare(await observe(sources)))


async def finds(sources: Sources, *wanted: tuple[Kind, str]) -> None:
    """Wait until the audit finds exactly these kinds and objects."""
    found: list[tuple[Kind, str]] = []
    try:
        async with asyncio.timeout(_DEADLINE_SECONDS):
            while True:
                lasting = (await audit(sources)).lasting
                found = [(each.kind, each.object) for each in lasting]
                if sorted(found, key=str) == sorted(wanted, key=str):
                    return
    except TimeoutError:
        raise AssertionError(f"the audit finds {found}, not {list(wanted)}") from None


def inventory(folder: Path, *racks: str) -> Path:
    """An elastic machine for each rack, m-0 and so on."""
    size = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    lines: Sequence[dict[str, Any]] = [
        {"id": f"m-{n}", "zone": "a", "rack": rack, "resources": size}
        for n, rack in enumerate(racks)
    ]
    return write_inventory(folder / "inventory.jsonl", *lines)


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short enough for sockets in it."""
    path = Path(tempfile.mkdtemp(prefix="bf-"))
    yield path
    shutil.rmtree(path)


@dataclass
class Fleet:
    """Two shards with a rack each, and an operator for each of two clusters."""

    sources: Sources
    shards: Sequence[Rig]
    operators: dict[str, FakeOperator]
    provider: str

    async def connect(self, cluster: str) -> None:
        """A session of the cluster with the shard that serves it."""
        operator = self.shards[0].stranger(cluster)
        await operator.say(hello=shard_pb2.Hello(cluster_id=cluster))
        first = await operator.receives(lambda m: m.HasField("redirect") or m.ack.echo == cluster)
        if first.HasField("redirect"):
            operator = await self.shards[1].operator(cluster)
        self.operators[cluster] = operator

    def serving(self, cluster: str) -> Rig:
        """The shard that serves the cluster."""
        return next(rig for rig in self.shards if cluster in owned_by(rig).clusters)


def has_machine(rig: Rig, cluster: str) -> bool:
    """Whether a machine has been configured for the cluster."""
    return any(each.state is _S.CONFIGURED for each in rig.shard.inventory.bound_to(cluster))


def owned_by(rig: Rig) -> Ownership:
    """What a shard of a fleet owns."""
    assert rig.shard.coordination is not None
    return rig.shard.coordination.ownership


@pytest_asyncio.fixture
async def fleet(binaries: Binaries, directory: Path) -> AsyncIterator[Fleet]:
    """A healthy fleet in which each cluster has one purchased machine."""
    inventory(directory, "r1", "r1", "r2", "r2")
    config = CoordinatorConfig("a", 0, 0, directory / "a", binaries.etcd, {}, expected_shards=2)
    async with AsyncExitStack() as closing:
        provider = await closing.enter_async_context(
            provider_serving(settings(directory), InstantHost())
        )
        leads = await closing.enter_async_context(coordinator_role.serving(config))
        closing.push_async_callback(leads.leadership.resign)
        coordinator, at = f"127.0.0.1:{leads.port}", f"127.0.0.1:{provider.port}"
        shards = []
        for name in ("s1", "s2"):
            remote = GrpcProvider(at)
            closing.push_async_callback(remote.close)
            link = GrpcCoordinator([coordinator])
            rig = shard({at: remote}, directory / name, None, link, shard_id=name)
            shards.append(await closing.enter_async_context(rig))
        await eventually(lambda: all(rig.shard.inventory.owned().any() for rig in shards))
        found = Fleet(Sources(coordinator=[coordinator]), shards, {}, at)
        for cluster in ("east", "west"):
            await found.connect(cluster)
            await found.operators[cluster].roll_up(need(1))
        yield found


async def test_a_healthy_fleet_of_two_shards_has_no_differences(fleet: Fleet) -> None:
    """Also once each cluster has a purchased machine."""
    for cluster in ("east", "west"):
        await eventually(partial(has_machine, fleet.serving(cluster), cluster))
    await finds(fleet.sources)


async def test_a_domain_that_two_shards_take_is_found(fleet: Fleet) -> None:
    """As after a restored disk: the record of one shard has what the other owns."""
    await finds(fleet.sources)
    one, other = (owned_by(rig) for rig in fleet.shards)
    one.change(replace(one.record, domains=one.record.domains | other.record.domains))
    [domain] = other.record.domains
    await finds(fleet.sources, (_K.DOMAIN_OF_TWO_SHARDS, f"domain {domain}"))


async def test_a_cluster_that_its_shard_has_forgotten_is_found_with_its_machine(
    fleet: Fleet,
) -> None:
    """The shard leaves the machine to whoever serves the cluster, which nobody does."""
    rig = fleet.serving("west")
    await eventually(partial(has_machine, rig, "west"))
    await finds(fleet.sources)
    [machine] = rig.shard.inventory.bound_to("west")
    await fleet.operators["west"].leave()
    owned_by(rig).drop_clusters({"west"})
    await finds(
        fleet.sources,
        (_K.CLUSTER_NOT_SERVED, "cluster west"),
        (_K.MACHINE_NOT_LISTED, f"machine {machine.id}"),
    )


async def test_a_quota_that_is_exceeded_is_found(fleet: Fleet) -> None:
    """Machines that were bought before it was lowered stay."""
    await finds(fleet.sources)
    async with LeaderClient(fleet.sources.coordinator) as client:
        quota = coordinator_pb2.QuotaAllocation(
            provider="kwok", region="a", per_shard={"s1": 0, "s2": 2}
        )
        await client.call("SetQuota", coordinator_pb2.SetQuotaRequest(quota=quota))
    await finds(fleet.sources, (_K.QUOTA_EXCEEDED, "quota of s1 at kwok a"))


async def test_a_machine_that_two_providers_list_is_found(fleet: Fleet, directory: Path) -> None:
    """By the record of one alone nobody could tell which of them is meant."""
    for cluster in ("east", "west"):
        await eventually(partial(has_machine, fleet.serving(cluster), cluster))
    await finds(fleet.sources)
    known = fleet.shards[0].shard.inventory
    free = next(m for m in ("m-0", "m-1") if known.state(m) is _S.SPECULATIVE)
    other = directory / "other"
    other.mkdir()
    size = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    line = {"id": free, "zone": "a", "rack": "r1", "resources": size}
    write_inventory(other / "inventory.jsonl", line)
    async with provider_serving(settings(other), InstantHost()) as second:
        providers = [fleet.provider, f"127.0.0.1:{second.port}"]
        both = replace(fleet.sources, providers=providers)
        await finds(both, (_K.MACHINE_OF_TWO_PROVIDERS, f"machine {free}"))


async def test_parts_that_do_not_answer_are_found_and_nothing_is_guessed(fleet: Fleet) -> None:
    """Not that the machines of a silent provider are gone, nor that a silent shard lists none."""
    await finds(fleet.sources)
    nobody = free_address()
    await finds(
        replace(fleet.sources, providers=[nobody]), (_K.SOURCE_UNAVAILABLE, f"provider {nobody}")
    )
    await finds(
        replace(fleet.sources, shard_addresses={"s1": nobody}), (_K.SOURCE_UNAVAILABLE, "shard s1")
    )


async def test_the_command_prints_what_it_found_and_says_so_by_its_exit_code(fleet: Fleet) -> None:
    """0 for nothing, 1 for a difference, 2 for flags that make no sense."""
    await finds(fleet.sources)
    [coordinator] = fleet.sources.coordinator
    flags = ["--coordinator", coordinator, "--insecure", "--pause", "1"]
    code, printed = await command(*flags, "--output", "json")
    assert (code, json.loads(printed)["differences"]) == (0, [])
    assert "4 machines" in (await command(*flags))[1]
    await fleet.operators["east"].leave()
    code, printed = await command(*flags)
    assert code == 1
    assert "cluster-not-served: no shard serves the cluster" in printed
    assert "  cluster east\n" in printed
    code, printed = await command(*flags, "--output", "json")
    [found] = json.loads(printed)["differences"]
    assert (code, found["kind"], found["object"]) == (1, "cluster-not-served", "cluster east")
    assert "has no session" in found["says"]["shard"]
    assert found["remedy"]
    assert (await command("--shard", "127.0.0.1:1", "--insecure"))[0] == 2
    assert (await command(*flags, "--cluster", "east"))[0] == 2


async def test_a_fleet_without_a_difference_is_observed_only_once(fleet: Fleet) -> None:
    """What is not there at first cannot last, so that there is nothing to wait for."""
    await finds(fleet.sources)
    [coordinator] = fleet.sources.coordinator
    async with asyncio.timeout(60):
        flags = ("--coordinator", coordinator, "--insecure", "--pause", "3600")
        code, printed = await command(*flags)
    assert code == 0
    assert "seen        once" in printed


async def command(*arguments: str) -> tuple[int | None, str]:
    """The exit code of `bigfleet audit`, and what it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bigfleet", "audit", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    printed, errors = await process.communicate()
    assert process.returncode in (0, 1, 2), (process.returncode, errors.decode())
    assert b"Traceback" not in errors, errors.decode()
    return process.returncode, printed.decode()


@dataclass
class Served:
    """A cluster with an operator, its shard, and a machine that has been configured for it."""

    client: KubeClient
    sources: Sources
    machine: str
    requests: str


@pytest_asyncio.fixture
async def served(
    kubeconfig: dict[str, Path], directory: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Served]:
    """The hosts of this provider register no Nodes: the machine's is made by hand. The operator
    deletes hints that are left behind at once, and not again.
    """
    monkeypatch.setattr(available_capacity, "RESEND_TIMEOUT_SECONDS", 0.1)
    inventory(directory, "r1", "r1")
    async with AsyncExitStack() as closing:
        provider = await closing.enter_async_context(
            provider_serving(settings(directory), InstantHost())
        )
        remote = GrpcProvider(f"127.0.0.1:{provider.port}")
        closing.push_async_callback(remote.close)
        rig = await closing.enter_async_context(shard(remote, directory))
        client = await closing.enter_async_context(await admin(kubeconfig))
        where = await closing.enter_async_context(namespace(client, "audited"))
        await client.create(requests_path(where), request("first"))
        await closing.enter_async_context(operating(kubeconfig, rig.address))
        await eventually(partial(has_machine, rig, "c"))
        machine = rig.shard.inventory.bound_to("c")[0].id
        await until_phase(client, machine, "Ready")
        sources = Sources(
            shard=rig.address,
            providers=[f"127.0.0.1:{provider.port}"],
            kubeconfigs={"c": kubeconfig["admin"]},
        )
        yield Served(client, sources, machine, requests_path(where))
        for plural in ("upcomingnodes", "availablecapacities"):
            await client.delete(f"{GROUP_VERSION}/{plural}")
        for name in (machine, "m-9"):
            await client.delete(node_path(name))


async def test_differences_of_a_real_cluster_are_found(served: Served) -> None:
    """One after the other: a Node that is missing, one of no machine, an announcement of a machine
    that is not coming, a hint for no need, a request whose Pod has finished.
    """
    client, sources = served.client, served.sources
    planted = [(_K.MACHINE_WITHOUT_NODE, f"machine {served.machine}")]
    await finds(sources, *planted)

    await add_ready_node(client, served.machine)
    await finds(sources)

    labels = {"kubernetes.io/hostname": "m-9", MACHINE_LABEL: "m-9"}
    await client.create("/api/v1/nodes", node("m-9", labels=labels))
    planted = [(_K.NODE_WITHOUT_MACHINE, "Node m-9 of cluster c")]
    await finds(sources, *planted)

    await client.create(f"{GROUP_VERSION}/upcomingnodes", announcement("m-8"))
    planted.append((_K.UPCOMING_NODE_LEFT_BEHIND, "UpcomingNode m-8 of cluster c"))
    await client.create(f"{GROUP_VERSION}/availablecapacities", hint("ac-0"))
    planted.append((_K.AVAILABLE_CAPACITY_LEFT_BEHIND, "AvailableCapacity ac-0 of cluster c"))
    pods = served.requests.replace(GROUP_VERSION, "/api/v1").replace("capacityrequests", "pods")
    made = json.loads(await client.create(pods, pod("done", schedulerName="nobody")))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "done", "uid": made["metadata"]["uid"]}
    body = request("second")
    body["metadata"]["ownerReferences"] = [owner]
    await client.create(served.requests, body)
    await client.patch(f"{pods}/done/status", {"status": {"phase": "Succeeded"}})
    name = f"{made['metadata']['namespace']}/second"
    planted.append((_K.REQUEST_WITHOUT_POD, f"CapacityRequest {name} of cluster c"))
    await finds(sources, *planted)


def announcement(name: str) -> dict[str, Any]:
    """An UpcomingNode."""
    head = {"apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "UpcomingNode"}
    return {**head, "metadata": {"name": name}, "spec": {"resources": {"cpu": "4"}}}


def hint(name: str) -> dict[str, Any]:
    """An AvailableCapacity."""
    head = {"apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "AvailableCapacity"}
    spec = {"availability": "Low", "availableCount": 1, "cost": "1", "resources": {"cpu": "4"}}
    return {**head, "metadata": {"name": name}, "spec": spec}
