"""Starts, steers and watches the process that plays the load.

Locust runs in a process of its own: its greenlets and the runner's event loop
do not mix, and a busy runner must not delay the load.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from loaddriver.errors import LoadProcessError
from loaddriver.load import files
from loaddriver.load.files import ClusterEndpoint, Control, EventResult, LoadStarted, ResultReader
from loaddriver.plan.files import save_plan
from loaddriver.plan.records import SETUP_STEP, Plan

# Locust looks at the control file once a second, so a release is given this much ahead.
RELEASE_NOTICE_SECONDS = 1.5
_START_TIMEOUT_SECONDS = 60.0
_FINISH_TIMEOUT_SECONDS = 30.0
_POLL_INTERVAL_SECONDS = 0.1


class Child(Protocol):
    """A started process, as asyncio's own subprocesses are."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    async def wait(self) -> int:
        """Waits for its end and gives its exit code."""
        ...


# Starts a process: its name in logs, its arguments, and variables to add to the environment.
Spawn = Callable[[str, Sequence[str], Mapping[str, str]], Awaitable[Child]]


@dataclass(frozen=True)
class LoadProgress:
    """How far the load is.

    `failed` are events that did not do their work after all attempts; `retried`
    needed more than one; `without_target` are churns that found no pod to delete. Lateness
    leaves the set-up out, which nothing is timed by; its p99 is None before the first
    other event.
    """

    planned: int
    sent: int = 0
    failed: int = 0
    retried: int = 0
    without_target: int = 0
    max_lateness_seconds: float = 0.0
    p99_lateness_seconds: float | None = None
    first_failure: str = ""

    def with_result(self, result: EventResult) -> LoadProgress:
        """The same with one more event played."""
        failure = "" if result.ok else f"{result.id}: HTTP {result.status} {result.detail}".strip()
        return replace(
            self,
            sent=self.sent + 1,
            failed=self.failed + (not result.ok),
            retried=self.retried + (result.attempts > 1),
            without_target=self.without_target + result.without_target,
            first_failure=self.first_failure or failure,
        )


class LoadProcess:
    """The load of one run; its files lie in `folder`."""

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
        """Starts Locust and returns once it can send.

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

    def release(self, step: int, at: float) -> None:
        """Lets a step's events be sent; their offsets count from `at` (Unix seconds).

        Give `at` at least RELEASE_NOTICE_SECONDS ahead, or the first events are late.
        """
        self._write_control(self._control.released(step, at))

    def progress(self) -> LoadProgress:
        """How far the load is now."""
        self._read()
        if not self._lateness:
            return self._progress
        self._lateness.sort()
        # The nearest rank: a figure that an event really had.
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
        """Returns once every event of a step has been played. Raises LoadProcessError."""
        await self._wait_until(
            lambda: self.step_finished(step), deadline_seconds, f"all of step {step} was sent"
        )

    async def finish(self) -> LoadProgress:
        """Ends Locust and gives the final figures; events not yet due are never sent.

        Raises LoadProcessError if it does not end, or ends with an error.
        """
        self._write_control(self._control.stopped())
        assert self._end is not None, "finish() follows start()"
        try:
            code = await asyncio.wait_for(asyncio.shield(self._end), _FINISH_TIMEOUT_SECONDS)
        except TimeoutError:
            raise LoadProcessError(
                f"the load process did not end within {_FINISH_TIMEOUT_SECONDS:g} s of "
                "being asked to"
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
            else:
                self._progress = self._progress.with_result(line)
                self._played[line.step] += 1
                if line.step > SETUP_STEP:
                    self._lateness.append(line.lateness_seconds)

    async def _wait_until(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        """Looks at the results file until `done`; a file can only be looked at, not awaited."""
        assert self._end is not None, "nothing is awaited before start()"
        deadline = asyncio.get_running_loop().time() + seconds
        self._read()
        while not done():
            if asyncio.get_running_loop().time() > deadline:
                raise LoadProcessError(f"after {seconds:g} s it was not yet so that {what}")
            ended, _ = await asyncio.wait([self._end], timeout=_POLL_INTERVAL_SECONDS)
            self._read()
            if ended and not done():
                raise LoadProcessError(
                    f"the load process ended with exit code {self._end.result()} "
                    f"before {what}; see its log"
                )


def locust_command() -> list[str]:
    """Locust without its page, its statistics tables and a verdict of its own."""
    locustfile = Path(__file__).with_name("locustfile.py")
    return [
        *(sys.executable, "-m", "locust", "--locustfile", str(locustfile)),
        *("--headless", "--only-summary", "--exit-code-on-error", "0", "--loglevel", "WARNING"),
    ]
