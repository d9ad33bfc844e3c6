"""Starts and stops clusters in the background: `up` and `down`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from loaddriver.errors import InfrastructureError
from loaddriver.run.arm_runner import READY
from loaddriver.substrates.runlock import Holder, current_holder, machine_lock_path

# Includes building the binaries, if they are missing.
_UP_TIMEOUT_SECONDS = 1800.0
# A run in an existing cluster waits for its namespaces to be removed.
_DOWN_TIMEOUT_SECONDS = 240.0
_POLL_INTERVAL_SECONDS = 0.2


def up(arguments: Sequence[str], log: Path, report: Callable[[str], None]) -> None:
    """Run `loaddriver hold` with `arguments` in the background; return once it is up.

    Its output is streamed to `report`. Raises InfrastructureError if it exits early.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as sink:
        child = subprocess.Popen(
            [sys.executable, "-m", "loaddriver", "hold", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _follow(child, log, report)
    except BaseException:
        child.terminate()
        child.wait()
        raise


def _follow(child: subprocess.Popen[bytes], log: Path, report: Callable[[str], None]) -> None:
    deadline = time.monotonic() + _UP_TIMEOUT_SECONDS
    with log.open() as output:
        while True:
            ended = child.poll() is not None
            lines = output.read().splitlines()
            for line in lines:
                report(line)
            if READY in lines:
                return
            if ended or time.monotonic() > deadline:
                raise InfrastructureError(f"startup failed; its output is in {log}")
            time.sleep(_POLL_INTERVAL_SECONDS)


def down() -> Holder | None:
    """End the run that holds this machine, wait for its cleanup, and return its holder.

    Returns None if there is none.
    """
    path = machine_lock_path()
    holder = current_holder(path)
    if holder is None:
        return None
    if not holder.pid:
        raise InfrastructureError("a run is starting on this machine; try again")
    # Not SIGINT: background jobs of scripts ignore it.
    with suppress(ProcessLookupError):  # already gone; its reaper is still cleaning up
        os.kill(holder.pid, signal.SIGTERM)
    deadline = time.monotonic() + _DOWN_TIMEOUT_SECONDS
    while current_holder(path) is not None:
        if time.monotonic() > deadline:
            raise InfrastructureError(f"pid {holder.pid} has not exited; try: kill {holder.pid}")
        time.sleep(_POLL_INTERVAL_SECONDS)
    return holder
