"""A node as a container of the engine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from kind.engine import Engine
from kind.errors import KindError
from loaddriver.substrates.kind.addresses import NodeAddress
from loaddriver.substrates.ports import LOOPBACK

_COPY_SECONDS = 60.0


class Node:
    """A node container, running or not."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self.name = name

    async def address(self) -> NodeAddress:
        """Where it is reached, from other containers and from here. Raises KindError."""
        settings = json.loads(await self._run("inspect", "--format={{json .NetworkSettings}}"))
        [network] = settings["Networks"].values()
        return NodeAddress(network["IPAddress"], published(settings["Ports"]))

    async def read(self, path: str) -> str:
        """A file of the node. Raises KindError."""
        return await asyncio.to_thread(self._engine.run, "exec", self.name, "cat", path)

    async def copy_out(self, path: str, to: Path) -> None:
        """Copy a folder of the node, also of one that has ended. Raises KindError."""
        source = f"{self.name}:{path}"
        await asyncio.to_thread(
            self._engine.run, "cp", source, str(to), timeout_seconds=_COPY_SECONDS
        )

    async def output(self) -> str:
        """What the node itself wrote, from its first process on. Raises KindError."""
        return await self._run("logs")

    async def runs(self) -> bool:
        """Whether the container is running."""
        try:
            answer = await self._run("inspect", "--format={{.State.Running}}")
        except KindError:
            return False
        return answer.strip() == "true"

    async def _run(self, command: str, *arguments: str) -> str:
        return await asyncio.to_thread(self._engine.run, command, *arguments, self.name)


def published(ports: dict[str, Any]) -> dict[int, int]:
    """Ports on loopback of this machine by the node's own port, from an `inspect`."""
    return {
        int(port.partition("/")[0]): int(host["HostPort"])
        for port, hosts in ports.items()
        for host in hosts or ()
        if host["HostIp"] == LOOPBACK
    }
