"""Runs a short command; converts its failure to one message."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

from kind.errors import KindError

_LINES_SHOWN = 12


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout_seconds: float = 60.0,
    input: IO[bytes] | None = None,
) -> bytes:
    """The command's standard output.

    Raises KindError with the command and its last lines if it cannot start, fails or times out; it
    has ended by then.
    """
    try:
        answer = subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL if input is None else input,
            capture_output=True,
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise KindError(f"{_shown(command)} timed out after {timeout_seconds:.0f} s") from error
    except OSError as error:
        raise KindError(f"{_shown(command)} cannot be run: {error.strerror}") from error
    if answer.returncode != 0:
        raise KindError(f"{_shown(command)} failed: {_last_lines(answer.stderr or answer.stdout)}")
    return answer.stdout


def _shown(command: Sequence[str]) -> str:
    return f"`{shlex.join(command)}`"


def _last_lines(output: bytes) -> str:
    lines = output.decode("utf-8", errors="replace").strip().splitlines()
    if len(lines) < 2:
        return lines[0] if lines else "no output"
    return "last lines:\n" + "\n".join(f"  {line}" for line in lines[-_LINES_SHOWN:])
