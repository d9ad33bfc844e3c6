"""Clusters that stay up while their user does something else: `up` and `down`."""

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

# Building the binaries may be part of it.
_UP_TIMEOUT_SECONDS = 1800.0
_DOWN_TIMEOUT_SECONDS = 60.0
_POLL_INTERVAL_SECONDS = 0.2


def up(arguments: Sequence[str], log: Path, report: Callable[[str], None]) -> None:
    """Run `loaddriver hold` with `arguments` in the background; return once it is up.

    What it says is told as it comes. InfrastructureError when it ends instead.
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
                raise InfrastructureError(f"it did not come up; all it said is in {log}")
            time.sleep(_POLL_INTERVAL_SECONDS)


def down() -> Holder | None:
    """End whatever holds this machine and return once it is cleaned up; None if nothing did."""
    path = machine_lock_path()
    holder = current_holder(path)
    if holder is None:
        return None
    if not holder.pid:
        raise InfrastructureError("a run is just starting on this machine; try again")
    # Not SIGINT, which a job that a script put into the background ignores.
    with suppress(ProcessLookupError):  # already gone: its warden is still cleaning up
        os.kill(holder.pid, signal.SIGTERM)
    deadline = time.monotonic() + _DOWN_TIMEOUT_SECONDS
    while current_holder(path) is not None:
        if time.monotonic() > deadline:
            raise InfrastructureError(f"pid {holder.pid} has not ended; try: kill {holder.pid}")
        time.sleep(_POLL_INTERVAL_SECONDS)
    return holder
