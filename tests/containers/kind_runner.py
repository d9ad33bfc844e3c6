"""A run on kind reduced to its frame: makes one cluster, waits, always stops."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from controlplane.request import request_from
from loaddriver.commands.common import ended_by_signals
from loaddriver.substrates.kind.prerequisites import obtain
from loaddriver.substrates.kind.substrate import KindSubstrate
from loaddriver.substrates.runscope import RunScope


async def run(run_id: str, directory: Path) -> None:
    prerequisites = obtain(request_from(os.environ), print)
    scope = RunScope.open(run_id, "test", directory / "logs", directory / "lock")
    print("data", scope.data_directory, flush=True)
    substrate = KindSubstrate(run_id, scope.data_directory, directory / "logs", prerequisites, {})
    try:
        await substrate.start_clusters(["a"])
        print("ready", flush=True)
        await substrate.first_unexpected_exit()
    finally:
        await substrate.stop()
        print(await scope.close(), flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(ended_by_signals(run(sys.argv[1], Path(sys.argv[2]))))
    except asyncio.CancelledError:
        sys.exit(130)
