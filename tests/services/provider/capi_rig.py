"""A provider of Cluster API's machines, in this process or in one that can be killed."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bigfleet.adapters.clock.system import SystemClock
from bigfleet.adapters.provider.grpc import GrpcProvider
from bigfleet.conformance.fake_cluster import FakeCluster
from bigfleet.kube.client import KubeClient
from bigfleet.model.errors import Unavailable
from bigfleet.model.machine import Machine, MachineEvent, MachineState
from bigfleet.ports.provider import Fence
from bigfleet.services.provider.capi import catalog
from bigfleet.services.provider.capi.controller import MachineController
from bigfleet.services.provider.capi.management import ManagementCluster
from bigfleet.services.provider.capi.records import Records
from bigfleet.services.provider.lifecycle import Order, Record
from bigfleet.tasks import cancel_and_wait
from tests.support import cluster_api
from tests.support.cluster_api import DyingClient, StandIn
from tests.support.clusters import get, namespace
from tests.support.listed import listed
from tests.support.ports import free_address
from tests.support.waiting import eventually

NAME = "cluster-api"
ELASTIC, OWN = "m6i-large-a-0", "rack1-0"
CLUSTER = "west"


def offerings() -> dict[str, Any]:
    """Those of the example, and a kind with taints that can be bought."""
    found: dict[str, Any] = yaml.safe_load((cluster_api.EXAMPLES / "offerings.yaml").read_text())
    tainted = {**found["offerings"][0], "name": "tainted", "count": 1}
    tainted["taints"] = [{"key": "example.com/slow", "value": "yes", "effect": "NoSchedule"}]
    found["offerings"].append(tainted)
    return found


@dataclass
class Rig:
    """A namespace of a management cluster, in which the example's files are applied."""

    admin: KubeClient
    namespace: str
    kubeconfig: Path
    folder: Path
    cluster: FakeCluster
    stand_in: StandIn
    content: dict[str, Any] = field(default_factory=offerings)
    sequence: int = 0
    client: DyingClient | None = None

    async def killed(self) -> None:
        """Returns once the last provider would have gone on, had it not been killed."""
        client = self.client
        assert client is not None
        await eventually(lambda: client.refused > 0, "another request")

    async def machines(self) -> list[dict[str, Any]]:
        """The Machines that there are."""
        found: list[dict[str, Any]] = (await get(self.admin, self.stand_in.machines))["items"]
        return found

    async def left(self) -> list[str]:
        """What there is of machines: everything that a drain must take away."""
        core = f"/api/v1/namespaces/{self.namespace}"
        start = f"namespaces/{self.namespace}"
        found = []
        for path in (
            self.stand_in.machines,
            f"/apis/infrastructure.cluster.x-k8s.io/v1beta2/{start}/awsmachines",
            f"/apis/infrastructure.cluster.x-k8s.io/v1beta1/{start}/metal3machines",
            f"/apis/bootstrap.cluster.x-k8s.io/v1beta2/{start}/kubeadmconfigs",
            f"{core}/secrets",
        ):
            items = (await get(self.admin, path))["items"]
            found += [f"{path.rpartition('/')[2]}/{each['metadata']['name']}" for each in items]
        return [each for each in found if each != "secrets/west-bootstrap"]

    @asynccontextmanager
    async def controller(
        self, requests: int = 1_000_000, repair_seconds: float = 0.0
    ) -> AsyncIterator[MachineController]:
        """A provider in this process; after so many requests it is as if it had been killed."""
        async with await DyingClient.from_kubeconfig(self.kubeconfig) as client:
            offered = catalog.parse(self.content, "offerings")
            management = ManagementCluster(client, self.namespace, NAME)
            records = Records(client, self.namespace, NAME, offered)
            await records.load()
            made = MachineController(
                records, management, offered, NAME, repair_seconds, SystemClock()
            )
            made.start()
            await eventually(lambda: not made.not_ready, "Machines to be listed")
            assert isinstance(client, DyingClient)
            self.client, client.left = client, requests
            try:
                yield made
            finally:
                await made.close()

    def order(self, event: MachineEvent, grace_seconds: int = 0) -> Callable[[], Order]:
        """An order to join the cluster, or another one."""
        if event is not MachineEvent.CONFIGURE:
            return lambda: Order(event, grace_seconds=grace_seconds)
        blob, metadata = self.cluster.blob(ELASTIC), {"purpose": "test"}
        return lambda: Order(event, self.cluster.id, blob, metadata)

    def fence(self) -> Fence:
        """Newer than the one before."""
        self.sequence += 1
        return Fence("shard", 1, self.sequence)

    async def give(
        self,
        to: MachineController,
        event: MachineEvent,
        machine_id: str = ELASTIC,
        grace_seconds: int = 0,
    ) -> Record:
        """Give an order; the machine's record."""
        order = self.order(event, grace_seconds)
        if event is MachineEvent.CONFIGURE:
            blob, told = self.cluster.blob(machine_id), order()
            order = lambda: Order(event, told.cluster, blob, told.shard_metadata)  # noqa: E731
        return await to.submit(machine_id, self.fence(), order)

    async def until(
        self, provider: MachineController, state: MachineState, machine_id: str = ELASTIC
    ) -> Machine:
        """The machine once it is in that state."""

        def there() -> bool:
            return provider.records.get(machine_id).machine.state is state

        try:
            await eventually(there, f"{machine_id} to be {state.name}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {provider.records.get(machine_id)}") from None
        return provider.records.get(machine_id).machine

    async def in_service(self, provider: MachineController, machine_id: str = ELASTIC) -> Machine:
        """The machine once it serves the cluster."""
        if provider.records.get(machine_id).machine.state is MachineState.SPECULATIVE:
            await self.give(provider, MachineEvent.CREATE, machine_id)
            await self.until(provider, MachineState.IDLE, machine_id)
        await self.give(provider, MachineEvent.CONFIGURE, machine_id)
        return await self.until(provider, MachineState.CONFIGURED, machine_id)


@asynccontextmanager
async def rig(kubeconfig: Path, folder: Path, stand_in: bool = True) -> AsyncIterator[Rig]:
    """The namespace with what the example's files have, Cluster API's stand-in at work in it."""
    served = FakeCluster(CLUSTER)
    async with (
        await KubeClient.from_kubeconfig(kubeconfig) as admin,
        namespace(admin, f"capi-{uuid.uuid4().hex[:8]}") as own,
        served.serving("127.0.0.1", 0),
    ):
        await cluster_api.install(admin)
        for file in ("role.yaml", "bootstrap.yaml"):
            await cluster_api.create(admin, own, *cluster_api.documents(file))
        for kind, name in (("AWSMachineTemplate", "m6i-large"), ("Metal3MachineTemplate", "rack1")):
            await cluster_api.create(admin, own, cluster_api.template(kind, name))
        provider = await cluster_api.account(admin, own, folder)
        controllers = StandIn(admin, own, served)
        task = asyncio.create_task(controllers.work() if stand_in else asyncio.sleep(0))
        try:
            yield Rig(admin, own, provider, folder, served, controllers)
        finally:
            await cancel_and_wait(task)


class CapiProcess:
    """`bigfleet capi-provider`, on an address that survives its restarts."""

    def __init__(self, rig: Rig) -> None:
        self.address, self._rig = free_address(), rig
        self._observe = free_address()
        self._process: asyncio.subprocess.Process | None = None
        self.log = rig.folder / "capi-provider.log"

    async def begin(self) -> asyncio.subprocess.Process:
        """Start it."""
        file = self._rig.folder / "offerings.yaml"
        file.write_text(yaml.safe_dump(self._rig.content))
        flags = ["--listen", self.address, "--observe", self._observe, "--insecure"]
        flags += ["--offerings", str(file), "--namespace", self._rig.namespace]
        flags += ["--kubeconfig", str(self._rig.kubeconfig)]
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bigfleet", "capi-provider", *flags, stderr=log
            )
        return self._process

    async def restart(self) -> None:
        """Kill it, if it runs, and start it; returns once it answers."""
        await self.kill()
        await self.begin()
        await eventually(self._answers, "the provider answers")

    async def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.returncode is None, self.log.read_text()
        client = GrpcProvider(self.address)
        with suppress(Unavailable):
            await listed(client)
            await client.close()
            return True
        await client.close()
        return False

    async def kill(self) -> None:
        """As a crash of its host would."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
