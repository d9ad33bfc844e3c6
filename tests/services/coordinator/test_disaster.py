"""Disaster recovery: all disks of the control plane are lost, and restored as the guide says.

The coordinator, the shards, the provider and the commands are real processes with certificates. The
provider stands for the cloud: it loses nothing.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import grpc
import pytest

from bigfleet.api import transport
from bigfleet.api.auth.identity import Identity
from bigfleet.api.v1alpha1 import provider_pb2, shard_pb2
from bigfleet.api.v1alpha1.provider_pb2_grpc import CapacityProviderStub
from bigfleet.api.v1alpha1.shard_pb2_grpc import ShardStub
from bigfleet.model.machine import MachineState
from bigfleet.ports.provider import EPOCHS_SKIPPED
from controlplane.request import Binaries
from tests.support.ports import free_address
from tests.support.shard_rig import DEADLINE_SECONDS, FakeOperator, need

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs/guides/coordinator.md"
CLUSTERS = ("east", "west")
_S = MachineState


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short enough for sockets in it."""
    path = Path(tempfile.mkdtemp(prefix="bf-"))
    yield path
    shutil.rmtree(path)


async def run(*arguments: str) -> None:
    """Run a command, which must succeed."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", *arguments, cwd=ROOT)
    assert await process.wait() == 0, arguments


class Fleet:
    """One coordinator, two shards, a provider, and the clusters' operators."""

    def __init__(self, directory: Path, etcd: Path) -> None:
        self.home, self._etcd = directory, etcd
        self._names = ("provider", "coordinator", "s1", "s2")
        self.address = {name: free_address() for name in self._names}
        self.observe = {name: free_address() for name in self._names}
        self.peer = free_address()
        self.state = {name: directory / name for name in self._names}
        self.processes: dict[str, asyncio.subprocess.Process] = {}

    def identity(self, name: str) -> Identity:
        return Identity(self.home / "ids" / name)

    async def start(self, name: str, state: Path | None = None) -> None:
        """Start one service as the guide does."""
        ids = self.home / "ids"
        common = ["--listen", self.address[name], "--observe", self.observe[name]]
        common += ["--state", str(state or self.state[name])]
        if name == "provider":
            what = ["provider", "--identity", str(ids / "provider-kwok")]
            what += ["--inventory", str(self.home / "inventory.jsonl")]
        elif name == "coordinator":
            what = ["coordinator", "--identity", str(ids / "coordinator-a"), "--node-id", "a"]
            what += ["--etcd", str(self._etcd), "--peers", f"a={self.peer}"]
            what += ["--expected-shards", "2"]
        else:
            what = ["shard", "--identity", str(ids / f"shard-{name}"), "--shard-id", name]
            what += ["--provider", self.address["provider"], "--cycle", "0.2"]
            what += ["--coordinator", self.address["coordinator"], "--reclaim-hold", "3600"]
        with (self.home / f"{name}.log").open("ab") as log:
            self.processes[name] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bigfleet", *what, *common), cwd=ROOT, stderr=log
            )

    async def kill(self, *names: str) -> None:
        for name in names:
            if self.processes[name].returncode is None:
                self.processes[name].kill()
            await self.processes[name].wait()

    def log(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text()

    async def until_logged(self, name: str, log_tail: str) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while log_tail not in self.log(name):
                assert self.processes[name].returncode is None, self.log(name)[-2000:]
                await asyncio.sleep(0.1)

    async def machines(self) -> Mapping[str, tuple[int, str]]:
        """State and cluster by machine, as the provider has them."""
        admin = self.identity("admin")
        async with transport.channel(self.address["provider"], admin, "provider") as channel:
            listed = await CapacityProviderStub(channel).List(provider_pb2.ListFilter())
        return {machine.id: (machine.state, machine.cluster) for machine in listed.machines}

    async def at_work(self) -> Mapping[str, str]:
        found = (await self.machines()).items()
        return {name: cluster for name, (state, cluster) in found if state == _S.CONFIGURED}

    @asynccontextmanager
    async def operator(self, cluster: str) -> AsyncIterator[FakeOperator]:
        """A session with whichever shard serves the cluster."""
        address = self.address["s1"]
        async with AsyncExitStack() as channels:
            async with asyncio.timeout(DEADLINE_SECONDS):
                while isinstance(session := await self._dial(cluster, address, channels), str):
                    address = session or self.address["s1"]
                    await asyncio.sleep(0.2)
            try:
                yield session
            finally:
                await session.leave()

    async def _dial(
        self, cluster: str, address: str, channels: AsyncExitStack
    ) -> FakeOperator | str:
        """The session that was accepted, or where else to try; "" when nobody can tell."""
        channel = transport.channel(address, self.identity(f"cluster-{cluster}"), "shard")
        await channels.enter_async_context(channel)
        session = FakeOperator(ShardStub(channel).Session(None), cluster, helpful=True)
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await session.say(hello=shard_pb2.Hello(cluster_id=cluster))
        while not session.received and session.status is None:  # noqa: ASYNC110 - another process's
            await asyncio.sleep(0.02)
        if session.received and session.received[0].HasField("ack"):
            return session
        return session.received[0].redirect.address if session.received else ""


@asynccontextmanager
async def fleet(directory: Path, etcd: Path) -> AsyncIterator[Fleet]:
    """Everything runs, and each cluster has two machines."""
    made = Fleet(directory, etcd)
    ids = ["--coordinator", "a", "--shard", "s1", "s2", "--provider", "kwok", "--cluster"]
    await run("bigfleet", "certs", "--out", str(directory / "ids"), *ids, *CLUSTERS)
    with (directory / "inventory.jsonl").open("w") as file:
        for number in range(12):
            line = {
                "id": f"m-{number}", "state": "IDLE", "instance_type": "m6i.xlarge", "zone": "a",
                "capacity_type": "BARE_METAL", "price_per_hour": 0.2,
                "interruption_probability": 0.0, "rack": f"r{number // 3}",
                "resources": {"cpu": "4", "memory": "16Gi", "pods": "110"},
            }  # fmt: skip
            file.write(json.dumps(line) + "\n")
    try:
        for name in ("provider", "coordinator", "s1", "s2"):
            await made.start(name)
        yield made
    finally:
        await made.kill(*made.processes)


async def serve(made: Fleet, machines: int) -> None:
    """Have each cluster ask for this many machines, and get them."""
    for cluster in CLUSTERS:
        async with made.operator(cluster) as session:
            assert (await session.roll_up(need(machines))).rejected == ""
            async with asyncio.timeout(DEADLINE_SECONDS):
                while [*(await made.at_work()).values()].count(cluster) < machines:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)


def guides_restore(made: Fleet, file: Path, etcd: Path) -> list[str]:
    """The guide's command, with this fleet's names."""
    text = " ".join(GUIDE.read_text().split())
    found = re.search(r"`bigfleet (fleet restore FILE [^`]*)`", text)
    assert found, "the guide's step has another form now"
    log_tail = {
        "FILE": str(file),
        "NEW-DIR": str(made.state["coordinator"]),
        "PATH": str(etcd),
        "a=HOST-A:7792": f"a={made.peer}",
        "ids/coordinator-a": str(made.home / "ids/coordinator-a"),
    }
    return [log_tail.get(word, word) for word in found[1].split()]


async def test_a_fleet_recovers_from_the_loss_of_all_disks(
    binaries: Binaries, directory: Path
) -> None:
    """Saved, lost, restored by the guide: machines at work stay, new ones join, each cluster is
    served by one shard, and a life of a shard from before the disaster can do nothing any more.
    """
    async with fleet(directory, binaries.etcd) as made:
        await serve(made, machines=2)
        before = await made.at_work()
        ids = directory / "ids"
        save = ["--coordinator", made.address["coordinator"], "--identity", str(ids / "admin")]
        await run("bigfleet", "fleet", "save", str(directory / "saved"), *save)
        # The snapshot is older than the fleet: shards have had further lives since.
        for name in ("s1", "s2"):
            await made.kill(name)
            await made.start(name)
        await serve(made, machines=3)
        assert (made.state["s1"] / "epoch").read_text() == "2\n"
        old_copy = shutil.copytree(made.state["s1"], directory / "old-copy")
        working = await made.at_work()

        await made.kill("coordinator", "s1", "s2")
        for name in ("coordinator", "s1", "s2"):
            shutil.rmtree(made.state[name])
            (directory / f"{name}.log").unlink()
        assert await made.at_work() == working

        await run("bigfleet", *guides_restore(made, directory / "saved", binaries.etcd))
        for name in ("coordinator", "s1", "s2"):
            await made.start(name)
        for name in ("s1", "s2"):
            await made.until_logged(name, '"serving"')
            assert int((made.state[name] / "epoch").read_text()) > EPOCHS_SKIPPED
        await serve(made, machines=5)
        after = await made.at_work()
        assert before.items() <= working.items() <= after.items()

        await made.kill("s1")
        shutil.rmtree(old_copy / "lock", ignore_errors=True)
        await made.start("s1", state=old_copy)
        await made.until_logged("s1", "fenced by the coordinator")
        assert "start it with an empty one" in made.log("s1")


async def test_a_shard_that_lost_its_disk_gets_its_domains_again(
    binaries: Binaries, directory: Path
) -> None:
    """A second process gets none while the first one is alive."""
    async with fleet(directory, binaries.etcd) as made:
        await serve(made, machines=2)
        working = await made.at_work()
        await _twin(made)
        await made.kill("s1")
        shutil.rmtree(made.state["s1"])
        (directory / "s1.log").unlink()
        await made.start("s1")
        await made.until_logged("s1", '"serving"')
        assert int((made.state["s1"] / "epoch").read_text()) > EPOCHS_SKIPPED
        await serve(made, machines=4)
        assert working.items() <= (await made.at_work()).items()


async def _twin(made: Fleet) -> None:
    """Run a second s1 with its own directory and ports until it is rejected."""
    identity = made.home / "ids/shard-s1"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bigfleet", "shard", "--identity", str(identity)),
        *("--shard-id", "s1", "--listen", free_address()),
        *("--observe", free_address(), "--state", str(made.home / "twin")),
        *("--provider", made.address["provider"], "--coordinator", made.address["coordinator"]),
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            said = ""
            while "may be alive at" not in said:
                said = (await process.stderr.readline()).decode()
        assert made.address["s1"] in said
        await asyncio.sleep(3)
        assert process.returncode is None
        assert not (made.home / "twin/epoch").exists()
    finally:
        process.kill()
        await process.wait()
