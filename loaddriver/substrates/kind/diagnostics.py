"""Everything that may explain a failure, put into the run's folder before it is gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from bigfleet.kube.client import CONNECTION_ERRORS, ApiError
from kind.errors import KindError
from loaddriver.substrates.base import SubstrateError

MISSING = "missing.txt"
_OBJECTS = ("events", "pods", "nodes", "services", "persistentvolumeclaims")


async def write_diagnostics(
    folder: Path, get: Callable[[str], Awaitable[bytes]], export: Callable[[Path], None]
) -> None:
    """Write a cluster's events, Pods, Nodes and the like as JSON, and its node's logs and journal.

    `get` asks the cluster's API for a path, `export` writes what the node has into a folder. What
    could not be had is named in `missing.txt`, with the reason.
    """
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    for name in _OBJECTS:
        await _try(folder, name, _write_objects(folder / f"{name}.json", name, get))
    node = asyncio.to_thread(export, folder / "node")
    await _try(folder, "the node's logs and journal", node)


async def _write_objects(file: Path, plural: str, get: Callable[[str], Awaitable[bytes]]) -> None:
    readable = json.dumps(json.loads(await get(f"/api/v1/{plural}")), indent=1)
    await asyncio.to_thread(file.write_text, readable)


async def _try(folder: Path, what: str, work: Awaitable[None]) -> None:
    try:
        await work
    except (SubstrateError, KindError, ApiError, *CONNECTION_ERRORS) as error:
        with (folder / MISSING).open("a") as file:
            file.write(f"{what}: {str(error) or repr(error)}\n")
