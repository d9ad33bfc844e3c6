"""The built-in provider under test: a process that can be killed and restarted."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bigfleet.conformance.fake_cluster import FakeCluster
from bigfleet.model.errors import Unavailable

_MACHINES = 4
_READY_TIMEOUT_SECONDS = 30.0
# Long enough to observe operations in progress.
_LATENCY_SECONDS = "0.05,0.1"
_LOOPBACK = "127.0.0.1"


@dataclass
class BuiltinProvider:
    """`bigfleet provider` at `address`, with all its files in `folder`."""

    folder: Path
    address: str
    observe: str
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it; Unavailable if it does not come up."""
        with (self.folder / "provider.log").open("a") as log:
            self.process = await asyncio.create_subprocess_exec(*self._command(), stderr=log)
        try:
            async with asyncio.timeout(_READY_TIMEOUT_SECONDS):
                while not await self._listens():
                    if self.process.returncode is not None:
                        raise TimeoutError
                    await asyncio.sleep(0.05)
        except TimeoutError:
            log_text = (self.folder / "provider.log").read_text()
            raise Unavailable(f"the built-in provider did not start:\n{log_text}") from None

    async def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def restart(self) -> None:
        """Kill and start it."""
        await self.kill()
        await self.start()

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "bigfleet", "provider", "--insecure"]
        command += ["--listen", self.address, "--observe", self.observe]
        command += ["--state", str(self.folder / "state")]
        command += ["--inventory", str(self.folder / "inventory.jsonl")]
        command += ["--host-kubeconfigs", str(self.folder)]
        for order in ("create", "configure", "drain", "delete"):
            command += [f"--{order}-latency", _LATENCY_SECONDS]
        return command

    async def _listens(self) -> bool:
        host, port = self.address.rsplit(":", 1)
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except OSError:
            return False
        writer.close()
        return True


@asynccontextmanager
async def running(folder: Path, cluster: FakeCluster) -> AsyncIterator[BuiltinProvider]:
    """The provider, with machines whose hosts join `cluster`."""
    (folder / "inventory.jsonl").write_text("".join(_line(n) for n in range(_MACHINES)))
    (folder / f"{cluster.id}.kubeconfig").write_bytes(cluster.kubeconfig())
    with _held_addresses(2) as (address, observe):
        provider = BuiltinProvider(folder, address, observe)
        try:
            await provider.start()
            yield provider
        finally:
            await provider.kill()


def _line(number: int) -> str:
    machine = {
        "id": f"m-{number}",
        "state": "SPECULATIVE",
        "instance_type": "m6i.large",
        "zone": "zone-a",
        "rack": "zone-a-r1",
        "capacity_type": "ON_DEMAND",
        "price_per_hour": 0.25,
        "interruption_probability": 0.0,
        "resources": {"cpu": "2", "memory": "8Gi", "pods": "110"},
        "labels": {},
        "taints": [{"key": "example.com/slow", "effect": "NoSchedule"}] if number == 1 else [],
    }
    return json.dumps(machine) + "\n"


@contextmanager
def _held_addresses(count: int) -> Iterator[list[str]]:
    """Addresses on loopback that no other process is given, also while the provider is down.

    It listens with SO_REUSEPORT, so that it can share their ports with the sockets that hold them.
    """
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            each.bind((_LOOPBACK, 0))
        yield [f"{_LOOPBACK}:{each.getsockname()[1]}" for each in sockets]
