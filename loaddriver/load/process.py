"""Starts, controls and monitors the load: one process, or a master and its workers.

Locust runs in its own processes: greenlets and asyncio do not mix, and a busy runner must not delay
the load.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from loaddriver.errors import LoadProcessError, LoadTimeoutError
from loaddriver.load import files
from loaddriver.load.commands import LoadPlace, locust_command, master_command, worker_command
from loaddriver.load.files import (
    LOCUST,
    LOCUST_WORKERS,
    ClusterEndpoint,
    Control,
    EventResult,
    LoadStarted,
    ResultReader,
    StepReleased,
    WorkerJoined,
    WorkerLost,
    WorkerReading,
)
from loaddriver.load.progress import LoadProgress
from loaddriver.load.workers import (
    MAX_CLOCK_OFFSET_SECONDS,
    WorkerRecord,
    WorkerTally,
    nearest_p99,
)
from loaddriver.plan.files import save_plan
from loaddriver.plan.records import SETUP_STEP, Plan

# Locust reads the control file once a second, so releases are written this far ahead.
RELEASE_NOTICE_SECONDS = 1.5
_START_TIMEOUT_SECONDS = 60.0
# Workers on other hosts may have to be started by hand.
_JOIN_TIMEOUT_SECONDS = 600.0
_FINISH_TIMEOUT_SECONDS = 30.0
_POLL_INTERVAL_SECONDS = 0.1
_WATCH_INTERVAL_SECONDS = 1.0
_ONE_PROCESS = LoadPlace()


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


class LoadProcess:
    """The load of one run, with its files in `folder`: one process, or several at `place`."""

    def __init__(
        self,
        plan: Plan,
        endpoints: Sequence[ClusterEndpoint],
        folder: Path,
        place: LoadPlace = _ONE_PROCESS,
    ) -> None:
        self._plan, self._endpoints, self._place = plan, endpoints, place
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
        self._tallies: defaultdict[str, WorkerTally] = defaultdict(WorkerTally)
        self._players: dict[str, str] = {}
        self._fault = ""
        self._ends: dict[str, asyncio.Task[int]] = {}

    async def start(self, spawn: Spawn) -> None:
        """Start Locust; return once it is ready to send.

        Raises LoadProcessError if it ends first or is not ready within a minute; workers on other
        hosts have ten minutes.
        """
        save_plan(self._plan, self._files[files.PLAN_VARIABLE])
        files.write_endpoints(self._endpoints, self._files[files.CLUSTERS_VARIABLE])
        self._write_control(self._control)
        paths = {name: str(path) for name, path in self._files.items()}
        for name, (command, more) in self._commands().items():
            child = await spawn(name, command, {**paths, **more})
            self._ends[name] = asyncio.create_task(child.wait())
        elsewhere = self._place.elsewhere
        seconds = _JOIN_TIMEOUT_SECONDS if elsewhere else _START_TIMEOUT_SECONDS
        what = f"{self._place.workers} workers joined {self._place.listen}" if elsewhere else ""
        await self._wait_until(lambda: self._started, seconds, what or "it was ready to send")
        self._check_clocks()

    @property
    def process_names(self) -> list[str]:
        """The names of the processes that were started."""
        return list(self._ends)

    def release(self, release: StepReleased) -> None:
        """Release a step, to all workers alike.

        Its `at` must be at least RELEASE_NOTICE_SECONDS ahead, or the first events are late.
        """
        self._write_control(self._control.released(release))

    def progress(self) -> LoadProgress:
        """The current progress."""
        self._read()
        if not self._lateness:
            return self._progress
        self._lateness.sort()
        return replace(
            self._progress,
            max_lateness_seconds=self._lateness[-1],
            p99_lateness_seconds=nearest_p99(self._lateness),
        )

    def workers(self) -> tuple[WorkerRecord, ...]:
        """What each worker did so far; empty if one process plays the plan."""
        self._read()
        elsewhere = self._place.elsewhere
        return tuple(
            self._tallies[name].record(name, elsewhere=elsewhere) for name in sorted(self._tallies)
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

    async def failed(self) -> None:
        """Wait for a worker to be lost, and raise it as a LoadProcessError."""
        while True:
            self._read()
            self._raise_fault()
            await asyncio.sleep(_WATCH_INTERVAL_SECONDS)

    async def finish(self) -> LoadProgress:
        """Stop Locust and return the final progress; events not yet due are not sent.

        Raises LoadProcessError if a process does not exit, or exits with an error, or if a worker
        was lost.
        """
        self._write_control(self._control.stopped())
        assert self._ends, "finish() before start()"
        _, running = await asyncio.wait(self._ends.values(), timeout=_FINISH_TIMEOUT_SECONDS)
        for name, end in self._ends.items():
            if end in running:
                raise LoadProcessError(
                    f"{_sentence_name(name)} did not exit within {_FINISH_TIMEOUT_SECONDS:g} s of "
                    "the request to stop"
                )
            if end.result() != 0:
                raise LoadProcessError(
                    f"{_sentence_name(name)} ended with exit code {end.result()}; see its log"
                )
        self._read()
        self._raise_fault()
        return self.progress()

    def _commands(self) -> dict[str, tuple[list[str], dict[str, str]]]:
        """The command and the further variables of each process."""
        if not self._place.distributed:
            return {LOCUST: (locust_command(), {})}
        host, port = self._place.address()
        count = {files.WORKERS_VARIABLE: str(self._place.workers)}
        found = {LOCUST: (master_command(host, port, self._place.workers), count)}
        for number in () if self._place.elsewhere else range(1, self._place.workers + 1):
            name = {files.WORKER_VARIABLE: f"worker-{number}"}
            found[f"{LOCUST_WORKERS}{number}"] = worker_command(host, port), name
        return found

    def _write_control(self, control: Control) -> None:
        self._control = control
        files.write_control(control, self._files[files.CONTROL_VARIABLE])

    def _read(self) -> None:
        for line in self._reader.new_lines():
            match line:
                case LoadStarted():
                    self._started = True
                case EventResult():
                    self._take(line)
                case WorkerJoined():
                    self._tallies[line.worker].events = line.events
                case WorkerReading():
                    self._tallies[line.worker].readings.append(line)
                case WorkerLost():
                    self._fault = self._fault or f"load worker {line.worker} {line.reason}"

    def _take(self, result: EventResult) -> None:
        self._progress = self._progress.with_result(result)
        self._played[result.step] += 1
        if result.step > SETUP_STEP:
            self._lateness.append(result.lateness_seconds)
        if result.worker:
            self._tallies[result.worker].take(result)
            first = self._players.get(result.id)
            if first is not None and not self._fault:
                both = f"by {first} and {result.worker}"
                self._fault = f"the event {result.id} was played twice, {both}"
            self._players[result.id] = result.worker

    def _raise_fault(self) -> None:
        if self._fault:
            raise LoadProcessError(
                f"{self._fault}; the run ends, as nobody else may play the events of a worker"
            )

    def _check_clocks(self) -> None:
        """Raise LoadProcessError if a worker's clock is proven to be too far off."""
        for worker in self.workers():
            offset = worker.proven_clock_offset_seconds or 0.0
            if offset > MAX_CLOCK_OFFSET_SECONDS:
                raise LoadProcessError(
                    f"load worker {worker.name}: its clock and the runner's differ by {offset:.2f} "
                    f"s, and may by {MAX_CLOCK_OFFSET_SECONDS:g} s; synchronise them, by NTP for "
                    "instance"
                )

    async def _wait_until(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        """Poll the results file until `done`."""
        assert self._ends, "wait before start()"
        deadline = asyncio.get_running_loop().time() + seconds
        self._read()
        while not done():
            if asyncio.get_running_loop().time() > deadline:
                raise LoadTimeoutError(f"timed out after {seconds:g} s: expected that {what}")
            await asyncio.wait(
                self._ends.values(),
                timeout=_POLL_INTERVAL_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
            self._read()
            self._raise_fault()
            ended = [name for name, end in self._ends.items() if end.done()]
            if ended and not done():
                raise LoadProcessError(
                    f"{_sentence_name(ended[0])} ended with exit code "
                    f"{self._ends[ended[0]].result()} before {what}; see its log"
                )


def _sentence_name(process: str) -> str:
    return "the load process" if process == LOCUST else f"the load process {process}"
