"""Runs a long command: its output goes to a log, its progress to the caller."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from controlplane.errors import BinaryError

# Many times the slowest step measured: a step that takes longer hangs, probably on the network.
DEADLINE_SECONDS = 3600.0

_LINES_SHOWN = 12
_TERMINATION_SECONDS = 10.0
_KNOWN_CAUSES = (
    ("no space left on device", "the disk filled up while"),
    ("disk quota exceeded", "the disk quota was used up while"),
    ("cannot allocate memory", "memory ran out while"),
    ("signal: killed", "the compiler was killed, probably for lack of memory, while"),
)


def run_logged(
    purpose: str,
    command: Sequence[str],
    directory: Path,
    environment: Mapping[str, str],
    log: Path,
    on_wait: Callable[[float], None],
    interval_seconds: float,
) -> None:
    """Run command in directory, appending its output to log.

    Calls on_wait with the elapsed seconds every interval_seconds. Raises BinaryError with the
    purpose, the command, its last lines and the log. Always ends the command's process group.
    """
    with log.open("a", encoding="utf-8") as output:
        output.write(f"$ cd {directory} && {shlex.join(command)}\n")
        output.flush()
        start_byte = output.tell()
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            exit_code = _wait(process, on_wait, interval_seconds)
        finally:
            _end_group(process)
    if exit_code != 0:
        output_tail = log.read_bytes()[start_byte:].decode("utf-8", errors="replace")
        raise BinaryError(
            f"{failure_message(purpose, command, exit_code, output_tail)}; log: {log}"
        )


def _wait(
    process: subprocess.Popen[bytes],
    on_wait: Callable[[float], None],
    interval_seconds: float,
) -> int | None:
    """The exit code, or None if the deadline passed."""
    started = time.monotonic()
    while (elapsed_seconds := time.monotonic() - started) < DEADLINE_SECONDS:
        try:
            return process.wait(timeout=interval_seconds)
        except subprocess.TimeoutExpired:
            on_wait(elapsed_seconds + interval_seconds)
    return None


def _end_group(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    for wanted in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, wanted)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_TERMINATION_SECONDS)
            return


def failure_message(
    purpose: str, command: Sequence[str], exit_code: int | None, output: str
) -> str:
    """The error message: one line for a known cause, else the last lines of the output."""
    lines = output.splitlines()
    for sign, cause in _KNOWN_CAUSES:
        if any(sign in line.lower() for line in lines):
            return f"{cause} {purpose} (`{shlex.join(command)}`)"
    ending = "timed out" if exit_code is None else f"exit code {exit_code}"
    shown = "\n".join(f"  {line}" for line in lines[-_LINES_SHOWN:])
    return (
        f"{purpose} failed: `{shlex.join(command)}` ({ending}). Last lines:\n"
        f"{shown or '  (no output)'}"
    )
