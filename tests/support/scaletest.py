"""Running the harness as a user does, and looking at what it leaves."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from loaddriver.errors import ExitCode
from loaddriver.plan.manifests import INSTANCE_TYPE_KEY
from loaddriver.substrates.runlock import current_holder, machine_lock_path
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
# Only a failing test waits this long: machines that run tests may be slow.
PATIENCE_SECONDS = 700.0
_ORDERLY_SECONDS = 60.0
_ATTEMPTS = 3
SHARED_TEMPDIR = Path(tempfile.gettempdir())
# As little as has every phase; so few pods miss the profile's gate on their number.
TINY = (
    *("--set", "podsPerCluster=40", "--set", "ramp.steps=1", "--set", "ramp.stepSeconds=1"),
    *("--set", "soak.seconds=3", "--set", "soak.churnPodsPerSecond=2"),
)
# For runs that are to be broken, where what BigFleet would do does not matter.
WITHOUT_BIGFLEET = ("--set", "system=none")


class Scaletest:
    """One `loaddriver run`, its output as it comes, and its processes.

    With `ignore_interrupts` it begins as a job does that a script has put into the background. In
    a `tempdir` of its own it has its own machine lock, too: what it measures counts for nothing, as
    other tests run beside it.
    """

    python = sys.executable

    def __init__(
        self,
        results: Path,
        *arguments: str,
        ignore_interrupts: bool = False,
        tempdir: Path = SHARED_TEMPDIR,
    ) -> None:
        self.results = results
        self._tempdir = tempdir
        before = signal.getsignal(signal.SIGINT)
        if ignore_interrupts:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._start("run", *arguments, "--results", str(results))
        finally:
            signal.signal(signal.SIGINT, before)

    @classmethod
    def sound(cls, results: Path, *arguments: str) -> Scaletest:
        """A finished run that did not void itself. One that did, because this machine was busy with
        something else, is no result and is run again, as it says itself; at most three are made.
        """
        for attempt in range(_ATTEMPTS):
            run = cls(results / str(attempt), *arguments)
            if run.exit_code() != ExitCode.INVALID_RUN:
                break
        return run

    @classmethod
    def bare_of(cls, finished: Scaletest) -> Scaletest:
        """One `loaddriver bare` of a finished run."""
        again = cls.__new__(cls)
        again.results, again._tempdir = finished.results, finished._tempdir
        again._start("bare", str(finished.folder))
        return again

    def _start(self, *arguments: str) -> None:
        command = [self.python, "-m", "loaddriver", *arguments]
        with own_second():
            self.child = subprocess.Popen(
                command,
                cwd=ROOT,
                env=with_tempdir(self._tempdir),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            until_named(self.results, lambda: self.child.poll() is not None)
        self.lines: list[str] = []
        self._ended = False
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        _started.append(self)

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def await_line(self, text: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Return once a line of the output holds `text`; fail when it ends without."""

        def said() -> bool:
            return any(text in line for line in self.lines)

        with self._news:
            self._news.wait_for(lambda: said() or self._ended, seconds)
        assert said(), f"{text!r} was not said within {seconds} s:\n{self.output}"

    def exit_code(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Wait for the end."""
        code = self.child.wait(seconds)
        self._reader.join(10)
        if self.child.stdout is not None:
            self.child.stdout.close()
        return code

    def end(self) -> None:
        """End it if it still runs: orderly, or else by a kill, after which its reaper cleans up."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGINT)
            try:
                self.child.wait(_ORDERLY_SECONDS)
            except subprocess.TimeoutExpired:
                self.child.kill()
        self.exit_code()

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
        return self._summary(self.folder)

    def bare_summary(self) -> dict[str, Any]:
        """summary.json of the part without BigFleet."""
        return self._summary(self.folder / "bare")

    def _summary(self, folder: Path) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((folder / "summary.json").read_text())
        return loaded

    def processes(self) -> Iterator[psutil.Process]:
        """Everything alive that carries the mark of the run or of a part of it."""
        mark = f"BIGFLEET_RUN={self.folder.name}".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if any(each.startswith(mark) for each in path.read_bytes().split(b"\0")):
                    yield psutil.Process(int(path.parent.name))
            except (OSError, psutil.NoSuchProcess):
                continue

    def kill(self, *words: str) -> None:
        """SIGKILL the one process whose command line has all `words`."""
        (victim,) = (p for p in self.processes() if set(words) <= _words(p))
        os.kill(victim.pid, signal.SIGKILL)

    def left_overs(self) -> list[str]:
        """Processes, data and the machine's lock, where the run has left them."""
        roots = (Path("/dev/shm"), self._tempdir)
        data = [str(p) for root in roots for p in root.glob(f"bigfleet-*{self.folder.name}*")]
        holder = current_holder(self._tempdir / machine_lock_path().name)
        locks = [str(holder)] if holder and holder.pid == self.child.pid else []
        return [*data, *locks, *(str(p) for p in self.processes())]


@contextmanager
def own_second() -> Iterator[None]:
    """A run is named after the second that it begins in; no two tests begin one in the same."""
    with (SHARED_TEMPDIR / f"bigfleet-tests-{os.getuid()}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
        time.sleep(1.0)


def until_named(results: Path, ended: Callable[[], bool]) -> None:
    """Wait until a run has its folder there, or has ended without."""
    wait_until(lambda: ended() or any(results.glob("*-*")), "a folder of results")


def with_tempdir(path: Path) -> dict[str, str]:
    """This process's environment for a child with that directory for temporary files."""
    return {**os.environ, "TMPDIR": str(path)}


_started: list[Scaletest] = []


def end_all() -> None:
    """End what a test has left behind: it holds the machine, which the next test needs."""
    while _started:
        _started.pop().end()


def deployment(name: str, replicas: int, instance_type: str = "", times: int = 1) -> dict[str, Any]:
    """Small pods that nothing runs, or so many times as large, on machines of the type if one is
    named.
    """
    labels = {"app": name}
    resources = {"requests": {"cpu": f"{400 * times}m", "memory": f"{500 * times}Mi"}}
    spec: dict[str, Any] = {
        "containers": [{"name": "c", "image": "fake", "resources": resources}],
        "terminationGracePeriodSeconds": 1,
    }
    if instance_type:
        spec["affinity"] = {"nodeAffinity": _only_on(instance_type)}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def _only_on(instance_type: str) -> dict[str, Any]:
    term = {"key": INSTANCE_TYPE_KEY, "operator": "In", "values": [instance_type]}
    terms = [{"matchExpressions": [term]}]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def _words(process: psutil.Process) -> set[str]:
    try:
        line = process.cmdline()
    except psutil.Error:
        return set()
    return {Path(line[0]).name, *line[1:]} if line else set()
