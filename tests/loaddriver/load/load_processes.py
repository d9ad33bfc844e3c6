"""Processes of the load, started as the runner does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from loaddriver.load.files import EventResult, ResultReader, StepReleased
from loaddriver.load.process import Child, Spawn

Children = dict[str, asyncio.subprocess.Process]
"""Started processes by name."""


@asynccontextmanager
async def ended_children() -> AsyncIterator[Children]:
    """Kills at the end what is still running of the processes that are noted in it."""
    children: Children = {}
    try:
        yield children
    finally:
        for child in children.values():
            if child.returncode is None:
                child.kill()
            await child.wait()


def spawner(folder: Path, *instead: str, children: Children | None = None) -> Spawn:
    """Starts processes, or the command `instead`, and notes them in `children`."""

    async def spawn(name: str, argv: Sequence[str], env: Mapping[str, str]) -> Child:
        with (folder / f"{name}.log").open("wb") as log:
            child = await asyncio.create_subprocess_exec(
                *(instead or argv), env={**os.environ, **env}, stdout=log, stderr=log, cwd=folder
            )
        if children is not None:
            children[name] = child
        return child

    return spawn


def read_results(folder: Path) -> list[EventResult]:
    """Every result that was recorded."""
    lines = ResultReader(folder / "load.jsonl").new_lines()
    return [line for line in lines if isinstance(line, EventResult)]


def read_releases(folder: Path) -> dict[int, StepReleased]:
    """What was released, by step."""
    lines = ResultReader(folder / "load.jsonl").new_lines()
    return {line.step: line for line in lines if isinstance(line, StepReleased)}
