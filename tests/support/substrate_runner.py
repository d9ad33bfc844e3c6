"""A measuring run reduced to its frame: starts one cluster, waits, always stops."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

from controlplane.request import Binaries
from loaddriver.substrates.local import LocalSubstrate
from loaddriver.substrates.runscope import RunScope
from tests.support.substrates import FEW_OBJECTS, binaries_at


async def run(run_id: str, directory: Path, binaries: Binaries) -> None:
    scope = RunScope.open(run_id, "test", directory / "logs", directory / "lock")
    print("data", scope.data_directory, flush=True)
    substrate = LocalSubstrate(
        run_id, scope.data_directory, directory / "logs", binaries, {}, FEW_OBJECTS
    )
    try:
        await substrate.start_clusters(["a"])
        print("ready", flush=True)
        await substrate.first_unexpected_exit()
    finally:
        await substrate.stop()
        print(await scope.close(), flush=True)


if __name__ == "__main__":
    # What a script started with `&` is born deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run_id, directory, paths = sys.argv[1:]
    given = {name: Path(path) for name, path in json.loads(paths).items()}
    try:
        asyncio.run(run(run_id, Path(directory), binaries_at(given, {})))
    except KeyboardInterrupt:
        sys.exit(130)
