"""Starts, controls and monitors the load process.

Locust runs in its own process: greenlets and asyncio do not mix, and a busy runner must not delay
the load.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from loaddriver.errors import LoadProcessError, LoadTimeoutError
from loaddriver.load import files
from loaddriver.load.files import (
    ClusterEndpoint,
    Control,
    EventResult,
    LoadStarted,
    ResultReader,
    StepReleased,
)
from loaddriver.plan.files import save_plan
from loaddriver.plan.records import SETUP_STEP, Plan

# Locust reads the control file once a second, so releases are written this far ahead.
RELEASE_NOTICE_SECONDS = 1.5
_START_TIMEOUT_SECONDS = 60.0
_FINISH_TIMEOUT_SECONDS = 30.0
_POLL_INTERVAL_SECONDS = 0.1


class Child(Protocol):
    """A started process, with the interface of asyncio's subprocesses."""

    @property
    def pid(self) -> int:
        """The process id."""
        ...

    async def wait(self) -> int:
        """Wait for the process to exit; return its exit code."""
        ...


# Starts a process: its name in logs, its arguments, and variables to add to the environment.
Spawn = Callable[[str, Sequence[str], Mapping[str, str]], Awaitable[Child]]


@dataclass(frozen=True)
class LoadProgress:
    """The progress of the load.

    `failed` counts events without effect after all attempts, `unserved` those of them for which the
    server was busy, in error or silent, `retried` events that needed more than one attempt,
    `without_target` churns that found no pod to delete. Lateness excludes the set-up step; its
    p99 is None before the first other event.
    """

    planned: int
    sent: int = 0
    failed: int = 0
    unserved: int = 0
    retried: int = 0
    without_target: int = 0
    max_lateness_seconds: float = 0.0
    p99_lateness_seconds: float | None = None
    first_failure: str = ""

    def with_result(self, result: EventResult) -> LoadProgress:
        """Return a copy with one more event."""
        failure = "" if result.ok else f"{result.id}: HTTP {result.status} {result.detail}".strip()
        return replace(
            self,
            sent=self.sent + 1,
            failed=self.failed + (not result.ok),
            unserved=self.unserved + result.unserved,
            retried=self.retried + (result.attempts > 1),
            without_target=self.without_target + result.without_target,
            first_failure=self.first_failure or failure,
        )


class LoadProcess:
    """The load process of one run, with its files in `folder`."""

    def __init__(self, plan: Plan, endpoints: Sequence[ClusterEndpoint], folder: Path) -> None:
        self._plan = plan
        self._endpoints = endpoints
        self._files = {
            files.PLAN_VARIABLE: folder / "plan.jsonl",
            files.CLUSTERS_VARIABLE: folder / "clusters.json",
            files.CONTROL_VARIABLE: folder / "control.json",
            files.RESULTS_VARIABLE: folder / "load.jsonl",
        }
        self._reader = ResultReader(self._files[files.RESULTS_VARIABLE])
        self._control = Control()
        self._progress = LoadProgress(planned=len(plan.events))
        self._played = {step.number: 0 for step in plan.steps}
        self._lateness: list[float] = []
        self._started = False
        self._child: Child | None = None
        self._end: asyncio.Task[int] | None = None

    async def start(self, spawn: Spawn) -> None:
        """Start Locust; return once it is ready to send.

        Raises LoadProcessError if it ends first or is not ready within a minute.
        """
        save_plan(self._plan, self._files[files.PLAN_VARIABLE])
        files.write_endpoints(self._endpoints, self._files[files.CLUSTERS_VARIABLE])
        self._write_control(self._control)
        variables = {name: str(path) for name, path in self._files.items()}
        self._child = await spawn("locust", locust_command(), variables)
        self._end = asyncio.create_task(self._child.wait())
        await self._wait_until(
            lambda: self._started, _START_TIMEOUT_SECONDS, "it was ready to send"
        )

    def release(self, release: StepReleased) -> None:
        """Release a step.

        Its `at` must be at least RELEASE_NOTICE_SECONDS ahead, or the first events are late.
        """
        self._write_control(self._control.released(release))

    def progress(self) -> LoadProgress:
        """The current progress."""
        self._read()
        if not self._lateness:
            return self._progress
        self._lateness.sort()
        # The nearest rank.
        p99 = self._lateness[math.ceil(0.99 * len(self._lateness)) - 1]
        return replace(
            self._progress, max_lateness_seconds=self._lateness[-1], p99_lateness_seconds=p99
        )

    def step_finished(self, step: int) -> bool:
        """Whether every event of a step has been played."""
        self._read()
        planned = next(each.events for each in self._plan.steps if each.number == step)
        return self._played[step] >= planned

    async def wait_for_step(self, step: int, deadline_seconds: float) -> None:
        """Wait until every event of a step has been played. Raises LoadProcessError or, if only
        time ran out, LoadTimeoutError.
        """
        await self._wait_until(
            lambda: self.step_finished(step), deadline_seconds, f"all of step {step} was sent"
        )

    async def finish(self) -> LoadProgress:
        """Stop Locust and return the final progress; events not yet due are not sent.

        Raises LoadProcessError if it does not exit, or exits with an error.
        """
        self._write_control(self._control.stopped())
        assert self._end is not None, "finish() before start()"
        try:
            code = await asyncio.wait_for(asyncio.shield(self._end), _FINISH_TIMEOUT_SECONDS)
        except TimeoutError:
            raise LoadProcessError(
                f"the load process did not exit within {_FINISH_TIMEOUT_SECONDS:g} s of "
                "the request to stop"
            ) from None
        if code != 0:
            raise LoadProcessError(f"the load process ended with exit code {code}; see its log")
        return self.progress()

    def _write_control(self, control: Control) -> None:
        self._control = control
        files.write_control(control, self._files[files.CONTROL_VARIABLE])

    def _read(self) -> None:
        for line in self._reader.new_lines():
            if isinstance(line, LoadStarted):
                self._started = True
            elif isinstance(line, EventResult):
                self._progress = self._progress.with_result(line)
                self._played[line.step] += 1
                if line.step > SETUP_STEP:
                    self._lateness.append(line.lateness_seconds)

    async def _wait_until(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        """Poll the results file until `done`."""
        assert self._end is not None, "wait before start()"
        deadline = asyncio.get_running_loop().time() + seconds
        self._read()
        while not done():
            if asyncio.get_running_loop().time() > deadline:
                raise LoadTimeoutError(f"timed out after {seconds:g} s: expected that {what}")
            ended, _ = await asyncio.wait([self._end], timeout=_POLL_INTERVAL_SECONDS)
            self._read()
            if ended and not done():
                raise LoadProcessError(
                    f"the load process ended with exit code {self._end.result()} "
                    f"before {what}; see its log"
                )


def locust_command() -> list[str]:
    """The Locust command, without web page, statistics and its own exit code."""
    locustfile = Path(__file__).with_name("locustfile.py")
    return [
        *(sys.executable, "-m", "locust", "--locustfile", str(locustfile)),
        *("--headless", "--only-summary", "--exit-code-on-error", "0", "--loglevel", "WARNING"),
    ]
