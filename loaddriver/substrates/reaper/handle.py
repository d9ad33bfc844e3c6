"""The runner's handle of the reaper: start it first, close it last."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from loaddriver.substrates.base import SubstrateError

_IMPORT_ROOT = Path(__file__).resolve().parents[3]


class Reaper:
    """The reaper process, which cleans up after the runner has ended."""

    def __init__(self, child: subprocess.Popen[str], log_path: Path) -> None:
        self._child = child
        self._log_path = log_path

    @classmethod
    def start(
        cls, run_id: str, directories: Sequence[Path], locks: Sequence[int], log_path: Path
    ) -> Reaper:
        """Start it and wait until it ignores signals and is ready.

        `locks` are descriptors of locked files, kept until cleaning is done.
        Raises SubstrateError.
        """
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("a") as log:
            child = subprocess.Popen(
                [sys.executable, "-S", "-m", "loaddriver.substrates.reaper", run_id]
                + [str(directory) for directory in directories],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=_IMPORT_ROOT,
                env={},
                pass_fds=tuple(locks),
                start_new_session=True,
                text=True,
            )
        reaper = cls(child, log_path)
        reaper._await_ready()
        return reaper

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    async def close(self) -> str:
        """Let it clean up, wait for its exit and return its one-line report."""
        report, _ = await asyncio.to_thread(self._child.communicate)
        if self._child.returncode != 0:
            raise SubstrateError(f"{report.strip()}; see {self._log_path}")
        return report.strip()

    def _await_ready(self) -> None:
        assert self._child.stdout is not None
        if self._child.stdout.readline():
            return
        self._child.communicate()
        raise SubstrateError(f"the reaper did not start; see {self._log_path}")
