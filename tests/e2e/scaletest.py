"""Running the harness as a user does, and looking at what it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]


class Scaletest:
    """One `loaddriver run`, its output as it comes, and its processes."""

    def __init__(self, results: Path, *arguments: str) -> None:
        self.results = results
        command = [sys.executable, "-m", "loaddriver", "run", *arguments, "--results", str(results)]
        self.child = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()

    def await_line(self, text: str, seconds: float = 120) -> None:
        """Return once a line of the output holds `text`."""
        with self._news:
            seen = self._news.wait_for(lambda: any(text in line for line in self.lines), seconds)
        assert seen, f"{text!r} was not said within {seconds} s:\n{self.output}"

    def exit_code(self, seconds: float = 180) -> int:
        """Wait for the end."""
        code = self.child.wait(seconds)
        self._reader.join(10)
        if self.child.stdout is not None:
            self.child.stdout.close()
        return code

    @property
    def output(self) -> str:
        """All that was said so far."""
        return "\n".join(self.lines)

    @property
    def folder(self) -> Path:
        """The run's results."""
        (found,) = (p for p in self.results.iterdir() if not p.is_symlink())
        return found

    def summary(self) -> dict[str, Any]:
        """summary.json."""
        loaded: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return loaded

    def processes(self) -> Iterator[psutil.Process]:
        """Everything alive that carries the run's mark."""
        mark = f"BIGFLEET_RUN={self.folder.name}".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in path.read_bytes().split(b"\0"):
                    yield psutil.Process(int(path.parent.name))
            except (OSError, psutil.NoSuchProcess):
                continue

    def kill(self, *words: str) -> None:
        """SIGKILL the one process whose command line has all `words`."""
        (victim,) = (p for p in self.processes() if set(words) <= _words(p))
        os.kill(victim.pid, signal.SIGKILL)

    def left_overs(self) -> list[str]:
        """Processes and data that the run has left on this machine."""
        roots = (Path("/dev/shm"), Path("/tmp"))
        data = [str(p) for root in roots for p in root.glob(f"bigfleet-*{self.folder.name}*")]
        return [*data, *(str(p) for p in self.processes())]


def _words(process: psutil.Process) -> set[str]:
    try:
        line = process.cmdline()
    except psutil.Error:
        return set()
    return {Path(line[0]).name, *line[1:]} if line else set()
