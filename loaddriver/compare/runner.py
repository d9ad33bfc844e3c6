"""Plays each run as a process of its own, so that none inherits another's memory or threads."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil

from loaddriver.compare.state import SessionSpec, SideSpec
from loaddriver.errors import ExitCode, InfrastructureError, LoaddriverError
from loaddriver.run.folder import finished_runs
from loaddriver.substrates.runlock import RunLock, machine_claimed

OUTPUT = "output.log"
_QUIET_SHARE = 0.15
_SAMPLE_SECONDS = 5.0
_PATIENCE_SECONDS = 900.0
# Between the starts of two runs at once. Both play one plan: closer together, each pod of one meets
# the same pod of the other on the cores, and which comes first is noise of no system.
_APART_SECONDS = 2.0
_LAST_LINES = 8
# Ends that say nothing about the system under test.
_ENDING_THE_SESSION = (ExitCode.USAGE, ExitCode.HARNESS_BUG, ExitCode.INTERRUPTED)


class RunEndedError(LoaddriverError):
    """A run ended in a way that ends the session; it can go on later."""

    def __init__(self, code: ExitCode, log: Path) -> None:
        self.exit_code = code
        lines = log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        super().__init__("\n".join([*lines, f"the run's output is in {log}"]))


@dataclass(frozen=True)
class ProcessRunner:
    """Runs `loaddriver run` for each side of a session.

    `clock`, `pause` and `busy` are time and load: `busy` gives the share of the machine's CPU that
    was used in the seconds it is given, 0 to 1.
    """

    spec: SessionSpec
    profiles: Path
    busy: Callable[[float], float] = lambda seconds: psutil.cpu_percent(seconds) / 100
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def run(self, runs: Sequence[tuple[SideSpec, Path]]) -> list[Path]:
        """Run them; return their results folders. Raises RunEndedError if one has none to judge.

        A run that failed has results, whoever failed it. One that has none never started: the
        machine's lock was held, or a binary was missing.
        """
        with ExitStack() as held:
            lock = None
            if len(runs) > 1:
                lock = held.enter_context(machine_claimed(self.spec.profile))
            codes = _ended(self._all_started(runs, lock))
        return [_results(folder, code) for (_, folder), code in zip(runs, codes, strict=True)]

    def _all_started(
        self, runs: Sequence[tuple[SideSpec, Path]], lock: RunLock | None
    ) -> list[subprocess.Popen[bytes]]:
        children: list[subprocess.Popen[bytes]] = []
        try:
            for number, (spec, folder) in enumerate(runs, 1):
                if children:
                    self.pause(_APART_SECONDS)
                children.append(self._started(spec, folder, number, lock))
        except BaseException:  # also an interruption: none may outlive the session
            _interrupt(children)
            _ended(children)
            raise
        return children

    def _started(
        self, spec: SideSpec, folder: Path, number: int, lock: RunLock | None
    ) -> subprocess.Popen[bytes]:
        """A run; with a lock it is the `number`-th of two that share it."""
        shared = ["--of-two", f"{number}:{lock.descriptor}"] if lock else []
        with (folder / OUTPUT).open("w") as output:
            return subprocess.Popen(
                [*self.command(spec, folder), *shared],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[lock.descriptor] if lock else [],
            )

    def command(self, spec: SideSpec, folder: Path) -> list[str]:
        """The command line of a run of this side with its results below `folder`."""
        flags = {
            "--sut": spec.sut,
            "--kubernetes-version": spec.kubernetes_version,
            "--scheduler-config": spec.scheduler_config,
            "--seed": "" if self.spec.seed is None else str(self.spec.seed),
        }
        given = [part for name, value in flags.items() if value for part in (name, value)]
        programs = [f"--component={name}={path}" for name, path in spec.components.items()]
        overrides = [part for each in spec.overrides for part in ("--set", each)]
        own = ["--profiles", str(self.profiles), "--results", str(folder)]
        return [
            sys.executable,
            "-m",
            "loaddriver",
            "run",
            self.spec.profile,
            *own,
            *given,
            *programs,
            *overrides,
        ]

    def wait_until_quiet(self) -> None:
        """Return once this machine is idle. Raises InfrastructureError if it stays busy."""
        deadline = self.clock() + _PATIENCE_SECONDS
        while (share := self.busy(_SAMPLE_SECONDS)) > _QUIET_SHARE:
            if self.clock() > deadline:
                raise InfrastructureError(
                    f"other processes use {100 * share:.0f} % of this machine, and have for "
                    f"{_PATIENCE_SECONDS / 60:.0f} minutes: end them, then go on with --resume"
                )


def _results(folder: Path, code: int) -> Path:
    """The results of a run that ended with this code. Raises RunEndedError."""
    found = finished_runs(folder)
    if code in _ENDING_THE_SESSION or not found:
        raise RunEndedError(_exit_code(code), folder / OUTPUT)
    return found[-1].folder


def _exit_code(code: int) -> ExitCode:
    """The exit code of a run as one of the harness's; a run that a signal killed has none."""
    known = code in set(ExitCode) and code != ExitCode.PASS
    return ExitCode(code) if known else ExitCode.INFRASTRUCTURE


def _ended(children: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """The exit codes of runs. An interruption is passed on, and the runs clean up first."""
    return [_code(child, children) for child in children]


def _code(child: subprocess.Popen[bytes], children: Sequence[subprocess.Popen[bytes]]) -> int:
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            _interrupt(children)


def _interrupt(children: Sequence[subprocess.Popen[bytes]]) -> None:
    for each in children:
        each.send_signal(signal.SIGINT)
