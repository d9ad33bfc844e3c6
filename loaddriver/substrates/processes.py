"""Child processes of a run: started with a log and a marker, watched, ended in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from loaddriver.substrates.base import SubstrateError, UnexpectedExit, describe_exit
from loaddriver.substrates.reaper.cleanup import RUN_VARIABLE

_SHORTEST_POLL_SECONDS, _LONGEST_POLL_SECONDS = 0.05, 0.5
# Probes cost the starting processes CPU time: one that takes long is asked less often.
_POLL_SHARE = 0.05
_TAIL_BYTES = 16_384
_TAIL_LINES = 12


class Process:
    """One running child. Its log starts with the exact command line."""

    def __init__(self, name: str, command: Sequence[str], log_path: Path) -> None:
        self.name = name
        self.command = tuple(command)
        self.log_path = log_path
        self.pid = 0
        self.returncode: int | None = None
        self._exited = asyncio.Event()
        self._pidfd = -1

    async def wait(self) -> int:
        """Wait for the exit status; negative is a signal."""
        await self._exited.wait()
        assert self.returncode is not None
        return self.returncode

    async def wait_at_most(self, seconds: float) -> bool:
        """Whether the process ended within this time."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._exited.wait(), seconds)
        return self.returncode is not None

    def send(self, number: signal.Signals) -> None:
        """Signal this process; a reused process id is never signalled."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def unexpected_exit(self) -> UnexpectedExit:
        """Describe the exit of a process that has ended."""
        assert self.returncode is not None
        return UnexpectedExit(self.name, self.returncode, self.log_path, last_lines(self.log_path))

    def launch(self, environment: Mapping[str, str], on_exit: Callable[[Process], None]) -> None:
        """Run the command in a session of its own, so that Ctrl-C reaches only the runner.

        Raises SubstrateError if the command cannot be run.
        """
        try:
            child = self._popen(environment)
        except OSError as error:
            raise start_failure(self, f"cannot be run: {error.strerror}") from error
        self.pid = child.pid
        self._pidfd = os.pidfd_open(child.pid)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pidfd, self._on_exit, loop, child, on_exit)

    def _popen(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab", buffering=0) as log:
            log.write(f"$ {shlex.join(self.command)}\n".encode())
            return subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )

    def _on_exit(
        self,
        loop: asyncio.AbstractEventLoop,
        child: subprocess.Popen[bytes],
        report: Callable[[Process], None],
    ) -> None:
        loop.remove_reader(self._pidfd)
        # Not reaped yet, so the process group id is still valid: kill its descendants as well.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.returncode = child.wait()
        os.close(self._pidfd)
        self._exited.set()
        report(self)


class Supervisor:
    """Starts the processes of a run and reports unexpected exits."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._running: dict[str, Process] = {}
        self._expected: set[str] = set()
        self._first_unexpected_exit: asyncio.Future[UnexpectedExit] = (
            asyncio.get_running_loop().create_future()
        )

    def start(
        self, name: str, command: Sequence[str], log_path: Path, environment: Mapping[str, str]
    ) -> Process:
        """Start a child under a name that is unique among running children.

        `environment` is complete, except for the run's marker. Raises SubstrateError.
        """
        if name in self._running:
            raise SubstrateError(f"{name} is already running, as process {self._running[name].pid}")
        self._expected.discard(name)
        process = Process(name, command, log_path)
        process.launch({**environment, RUN_VARIABLE: self._run_id}, self._note_exit)
        self._running[name] = process
        return process

    def expect_exit(self, name: str) -> None:
        """Declare that the named child will exit once."""
        self._expected.add(name)

    async def await_expected_exit(self, name: str, deadline_seconds: float) -> None:
        """Wait for the declared exit of the named child, if it is running."""
        if name in self._running and name in self._expected:
            await self._running[name].wait_at_most(deadline_seconds)

    def running(self, prefix: str = "") -> list[Process]:
        """Running children by name prefix, in order of start."""
        return [child for name, child in self._running.items() if name.startswith(prefix)]

    def pids(self) -> dict[str, int]:
        """The process ids of running children, by name."""
        return {name: child.pid for name, child in self._running.items()}

    async def first_unexpected_exit(self) -> UnexpectedExit:
        """Wait for the first undeclared exit; later calls return the same one."""
        return await asyncio.shield(self._first_unexpected_exit)

    async def stop(self, processes: Sequence[Process], grace_seconds: float) -> None:
        """Stop these children one by one, in reverse order of start.

        A child is killed after its grace period. The wait for its exit has no deadline, since its
        ports and files can be reused only afterwards.
        """
        for process in processes:
            self._expected.add(process.name)
        for process in reversed(processes):
            process.send(signal.SIGTERM)
            if not await process.wait_at_most(grace_seconds):
                process.send(signal.SIGKILL)
            await process.wait()

    def _note_exit(self, process: Process) -> None:
        del self._running[process.name]
        if process.name not in self._expected and not self._first_unexpected_exit.done():
            self._first_unexpected_exit.set_result(process.unexpected_exit())


async def until_ready(
    process: Process, probe: Callable[[], Awaitable[bool]], deadline_seconds: float
) -> None:
    """Poll the probe until it succeeds. Raises SubstrateError on exit or timeout."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not await probe():
        longer = min(_LONGEST_POLL_SECONDS, _POLL_SHARE * (loop.time() - began))
        if await process.wait_at_most(max(_SHORTEST_POLL_SECONDS, longer)):
            raise start_failure(process, f"{describe_exit(await process.wait())} while starting")
        if loop.time() > began + deadline_seconds:
            raise start_failure(process, f"was not ready within {deadline_seconds:g} s")


def start_failure(process: Process, what: str) -> SubstrateError:
    """The error for a component that did not start: name, command, log, last lines."""
    tail = "".join(
        f"\n    {line}" for line in last_lines(process.log_path) if not line.startswith("$ ")
    )
    return SubstrateError(
        f"{process.name} {what}\n  command: {shlex.join(process.command)}"
        f"\n  log: {process.log_path}\n  its last lines:{tail or ' (none)'}"
    )


def last_lines(log_path: Path) -> tuple[str, ...]:
    """The last lines of a log; empty if there is none."""
    try:
        with log_path.open("rb") as log:
            log.seek(max(0, log_path.stat().st_size - _TAIL_BYTES))
            text = log.read().decode(errors="replace")
    except OSError:
        return ()
    return tuple(text.splitlines()[-_TAIL_LINES:])
