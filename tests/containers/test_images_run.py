"""Shard, provider and etcd from our images, as containers that may do no more than pods may."""

from __future__ import annotations

import json
import os
import urllib.request
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bigfleet.api import transport
from bigfleet.api.v1alpha1 import provider_pb2, shard_pb2
from bigfleet.api.v1alpha1.shard_pb2_grpc import ShardStub
from bigfleet.model.machine import MachineState
from controlplane.request import request_from
from kind.cluster import restore_host
from kind.errors import KindError
from kind.host_settings import shared_host_lock
from kind.images.resolve import Images, resolve_images
from kind.setup import Tools, find_tools
from tests.containers.containers_rig import HARDENED, docker_api, open_to_all
from tests.support.providers import write_inventory
from tests.support.shard_rig import FakeOperator, need

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]

GRPC, OBSERVE, ETCD_CLIENT = 8080, 8081, 2379
READY_SECONDS = 60
KILLED = 137


@pytest.fixture(scope="session")
def tools() -> Tools:
    """Of this machine; without a container engine there is nothing to test here."""
    try:
        return find_tools(request_from(os.environ), print)
    except KindError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def images(tools: Tools) -> Images:
    return resolve_images(request_from(os.environ), tools.engine, print)


@dataclass
class Containers:
    """Starts containers in a network of their own; all end with the test."""

    images: Images
    network: Any
    started: list[Any] = field(default_factory=list)

    def start(
        self, name: str, image: str, command: list[str], ports: list[int], **volumes: Any
    ) -> Any:
        """A container that its neighbours find by name; `volumes` are (host folder, mode)."""
        from testcontainers.core.container import DockerContainer

        container = DockerContainer(image, ports=ports, **HARDENED).with_command(command)
        container.with_network(self.network).with_network_aliases(name)
        container.with_tmpfs_mount("/tmp")
        for inside, (folder, mode) in volumes.items():
            container.with_volume_mapping(str(folder), f"/{inside}", mode)
        self.started.append(container)
        return container.start()

    def provider(self, folder: Path) -> Any:
        """With three machines that come and boot at once."""
        command = ["provider", "--insecure", "--listen", f"0.0.0.0:{GRPC}"]
        command += ["--observe", f"0.0.0.0:{OBSERVE}"]
        command += ["--state", "/state", "--inventory", "/inputs/inventory.jsonl"]
        return self.start(
            "provider",
            self.images.bigfleet.reference,
            command,
            [GRPC, OBSERVE],
            state=(folder / "provider", "rw"),
            inputs=(folder / "inputs", "ro"),
        )

    def shard(self, folder: Path) -> Any:
        """Decides several times a second, with the provider by its name."""
        command = ["shard", "--insecure", "--shard-id", "shard-0", "--provider", f"provider:{GRPC}"]
        command += ["--listen", f"0.0.0.0:{GRPC}", "--observe", f"0.0.0.0:{OBSERVE}"]
        command += ["--state", "/state", "--journal", "/state/machines.jsonl", "--cycle", "0.2"]
        image = self.images.bigfleet.reference
        return self.start("shard", image, command, [GRPC, OBSERVE], state=(folder / "shard", "rw"))

    def etcd(self, folder: Path) -> Any:
        """One member."""
        client = f"http://0.0.0.0:{ETCD_CLIENT}"
        command = ["--data-dir=/state", f"--listen-client-urls={client}"]
        command += [f"--advertise-client-urls={client}"]
        image = self.images.etcd.reference
        return self.start("etcd", image, command, [ETCD_CLIENT], state=(folder / "etcd", "rw"))


@pytest.fixture
def containers(
    tools: Tools, images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Containers]:
    with shared_host_lock(tools.host_state), docker_api(tools.engine, tmp_path) as settings:
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        from testcontainers.core.network import Network

        with Network() as network:
            containers = Containers(images, network)
            try:
                yield containers
            finally:
                for container in reversed(containers.started):
                    container.stop()
    restore_host(tools)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """State folders for each role, and an inventory."""
    for role in ("provider", "shard", "etcd"):
        open_to_all(tmp_path / role)
    (tmp_path / "inputs").mkdir()
    machines = [{"id": f"m-{n}", "zone": "a", "state": "IDLE"} for n in range(3)]
    write_inventory(tmp_path / "inputs/inventory.jsonl", *machines)
    return tmp_path


async def test_an_operators_need_becomes_a_machine_across_containers(
    containers: Containers, folder: Path
) -> None:
    """Roll-up in, bootstrap asked for, machine configured: shard and provider as shipped."""
    await_ready(containers.provider(folder))
    shard = containers.shard(folder)
    await_ready(shard)
    async with transport.channel(at(shard, GRPC)) as channel:
        operator = FakeOperator(ShardStub(channel).Session(None), "east", helpful=True)
        await operator.say(hello=shard_pb2.Hello(cluster_id="east"))
        assert not (await operator.roll_up(need())).rejected
        asked = await operator.receives(lambda m: bool(m.bootstrap_request.request_id))
        machine = asked.bootstrap_request.machine_id
        await operator.receives_state(machine, MachineState.CONFIGURED)
        await operator.leave()
    story = (folder / "shard/machines.jsonl").read_text()
    assert machine in story


async def test_a_shard_that_was_killed_serves_on_with_a_higher_epoch(
    containers: Containers, folder: Path
) -> None:
    """Its volume outlives it; a second shard on the same state would fence the first."""
    await_ready(containers.provider(folder))
    first = containers.shard(folder)
    await_ready(first)
    before = await epoch(first)
    first.get_wrapped_container().kill()
    assert first.get_wrapped_container().wait()["StatusCode"] == KILLED
    second = containers.shard(folder)
    await_ready(second)
    assert await epoch(second) == before + 1


async def test_a_provider_that_was_killed_knows_its_machines(
    containers: Containers, folder: Path
) -> None:
    """The inventory file is read once; afterwards the volume has the truth."""
    first = containers.provider(folder)
    await_ready(first)
    known = await machines(first)
    first.get_wrapped_container().kill()
    (folder / "inputs/inventory.jsonl").write_text("")
    second = containers.provider(folder)
    await_ready(second)
    assert len(known) == 3
    assert await machines(second) == known


def test_etcd_keeps_what_it_acknowledged(containers: Containers, folder: Path) -> None:
    """Our pinned etcd, killed after the acknowledgement."""
    first = containers.etcd(folder)
    await_ready(first, ETCD_CLIENT, "/health")
    ask(first, "/v3/kv/put", key="term", value="7")
    first.get_wrapped_container().kill()
    second = containers.etcd(folder)
    await_ready(second, ETCD_CLIENT, "/health")
    [pair] = ask(second, "/v3/kv/range", key="term")["kvs"]
    assert b64decode(pair["value"]) == b"7"


def test_images_run_as_nobody_in_particular_and_say_what_they_are(
    tools: Tools, images: Images
) -> None:
    """A number as user, which a cluster can check; a label that names the source."""
    for image in (images.bigfleet, images.loaddriver, images.kwok, images.etcd):
        config = json.loads(tools.engine.run("image", "inspect", image.reference))[0]["Config"]
        user = config["User"].partition(":")[0]
        assert user.isdecimal(), (image.reference, config["User"])
        assert int(user) > 0
        assert config["Labels"]["org.opencontainers.image.version"]


def test_a_wrong_flag_is_explained_and_ends_with_code_2(
    containers: Containers, images: Images
) -> None:
    """No traceback, also from inside a container."""
    container = containers.start("wrong", images.bigfleet.reference, ["shard"], [])
    ended = container.get_wrapped_container().wait()
    out, err = container.get_logs()
    assert ended["StatusCode"] == 2
    assert b"the following arguments are required" in out + err
    assert b"Traceback" not in out + err


def at(container: Any, port: int) -> str:
    return f"{container.get_container_host_ip()}:{container.get_exposed_port(port)}"


def await_ready(container: Any, port: int = OBSERVE, path: str = "/readyz") -> None:
    """Return once it says so; fail with its log when it does not."""
    from testcontainers.core.wait_strategies import HttpWaitStrategy

    strategy = HttpWaitStrategy(port, path).for_status_code(200)
    try:
        strategy.with_startup_timeout(READY_SECONDS).wait_until_ready(container)
    except TimeoutError:
        out, err = container.get_logs()
        pytest.fail(f"not ready; it said:\n{(out + err).decode(errors='replace')}")


async def epoch(shard: Any) -> int:
    async with transport.channel(at(shard, GRPC)) as channel:
        operator = FakeOperator(ShardStub(channel).Session(None), "east", helpful=False)
        await operator.say(hello=shard_pb2.Hello(cluster_id="east"))
        ack = (await operator.receives(lambda m: m.ack.echo == "east")).ack
        await operator.leave()
    return int(ack.shard_epoch)


async def machines(provider: Any) -> set[str]:
    from bigfleet.api.v1alpha1.provider_pb2_grpc import CapacityProviderStub

    async with transport.channel(at(provider, GRPC)) as channel:
        answer = await CapacityProviderStub(channel).List(provider_pb2.ListFilter())
    return {machine.id for machine in answer.machines}


def ask(etcd: Any, path: str, **texts: str) -> dict[str, Any]:
    """One request to etcd's JSON gateway, which wants base64."""
    body = json.dumps({name: b64encode(text.encode()).decode() for name, text in texts.items()})
    url = f"http://{at(etcd, ETCD_CLIENT)}{path}"
    with urllib.request.urlopen(url, body.encode(), timeout=10) as response:
        answer: dict[str, Any] = json.load(response)
    return answer
