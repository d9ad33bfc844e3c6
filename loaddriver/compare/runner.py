"""Plays one run as a process of its own, so that none inherits another's memory or threads."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from loaddriver.compare.state import SessionSpec, SideSpec
from loaddriver.errors import ExitCode, InfrastructureError, LoaddriverError
from loaddriver.run.folder import finished_runs

OUTPUT = "output.log"
_QUIET_SHARE = 0.15
_SAMPLE_SECONDS = 5.0
_PATIENCE_SECONDS = 900.0
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

    `clock`, `wait` and `busy` are time and load: `busy` gives the share of the machine's CPU that
    was used in the seconds it is given, 0 to 1.
    """

    spec: SessionSpec
    profiles: Path
    busy: Callable[[float], float] = lambda seconds: psutil.cpu_percent(seconds) / 100
    clock: Callable[[], float] = time.monotonic

    def run(self, spec: SideSpec, folder: Path) -> Path:
        """Run it; return its results folder. Raises RunEndedError if there is none to judge.

        A run that failed has results, whoever failed it. One that has none never started: the
        machine's lock was held, or a binary was missing.
        """
        log = folder / OUTPUT
        with log.open("w") as output:
            child = subprocess.Popen(
                self.command(spec, folder),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            code = _ended(child)
        found = finished_runs(folder)
        if code in _ENDING_THE_SESSION or not found:
            raise RunEndedError(_exit_code(code), log)
        return found[-1].folder

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


def _exit_code(code: int) -> ExitCode:
    """The exit code of a run as one of the harness's; a run that a signal killed has none."""
    known = code in set(ExitCode) and code != ExitCode.PASS
    return ExitCode(code) if known else ExitCode.INFRASTRUCTURE


def _ended(child: subprocess.Popen[bytes]) -> int:
    """The exit code of a run. An interruption is passed on, and the run cleans up first."""
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
