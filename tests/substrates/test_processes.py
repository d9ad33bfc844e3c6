from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.processes import Process, Supervisor, until_ready
from tests.support.substrates import PATIENCE_SECONDS, SLEEPER, log_lines
from tests.support.waiting import wait_until

STUBBORN = (
    sys.executable,
    "-S",
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('up', flush=True); time.sleep(600)",
)


@pytest_asyncio.fixture
async def supervisor(run_id: str) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(run_id)
    yield supervisor
    await supervisor.stop(supervisor.running(), 0)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "child.log"


async def started(supervisor: Supervisor, log: Path, command: tuple[str, ...]) -> Process:
    async def is_up() -> bool:
        return "up" in log_lines(log)

    process = supervisor.start(log.stem, command, log, {})
    await until_ready(process, is_up, PATIENCE_SECONDS)
    return process


async def test_an_exit_that_nobody_declared_is_reported_with_its_log(
    supervisor: Supervisor, log: Path
) -> None:
    process = await started(supervisor, log, SLEEPER)
    os.kill(process.pid, signal.SIGKILL)
    unexpected_exit = await supervisor.first_unexpected_exit()
    assert (unexpected_exit.name, unexpected_exit.returncode, unexpected_exit.log_path) == (
        "child",
        -signal.SIGKILL,
        log,
    )
    assert unexpected_exit.last_lines[-1] == "up"
    assert unexpected_exit.sentence == f"child was killed by SIGKILL; its log: {log}"
    assert supervisor.running() == []


async def test_even_a_clean_exit_is_a_death_when_nobody_declared_it(
    supervisor: Supervisor, log: Path
) -> None:
    """A component that stops working with exit code 0 has stopped working."""
    supervisor.start("child", ["true"], log, {})
    assert (await supervisor.first_unexpected_exit()).sentence.startswith(
        "child ended with exit code 0"
    )


async def test_a_declared_exit_is_no_death_but_the_next_one_is(
    supervisor: Supervisor, log: Path
) -> None:
    """A profile that restarts a component still sees it die for real afterwards."""
    process = await started(supervisor, log, SLEEPER)
    supervisor.expect_exit("child")
    process.send(signal.SIGKILL)
    assert await process.wait() == -signal.SIGKILL
    again = await started(supervisor, log, SLEEPER)
    os.kill(again.pid, signal.SIGTERM)
    assert (await supervisor.first_unexpected_exit()).returncode == -signal.SIGTERM


async def test_children_end_in_reverse_order_and_none_remains(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    """What was started last leans on what was started first."""
    farewell = tmp_path / "farewell"
    program = (
        "import signal, sys, time\n"
        "def end(*_):\n"
        "    open(sys.argv[2], 'a').write(sys.argv[1]); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); print('up', flush=True); time.sleep(600)"
    )
    for name in "abc":
        command = (sys.executable, "-S", "-c", program, name, str(farewell))
        await started(supervisor, tmp_path / f"{name}.log", command)
    await supervisor.stop(supervisor.running(), PATIENCE_SECONDS)
    assert farewell.read_text() == "cba"
    assert supervisor.running() == []


async def test_a_child_that_ignores_sigterm_is_killed_after_its_grace(
    supervisor: Supervisor, log: Path
) -> None:
    process = await started(supervisor, log, STUBBORN)
    await supervisor.stop([process], 0.1)
    assert process.returncode == -signal.SIGKILL


def words_of(command_line: Path) -> bytes:
    """None for one that is gone, nor for the zombie that its adoptive parent may leave."""
    try:
        return command_line.read_bytes()
    except OSError:
        return b""


async def test_grandchildren_do_not_outlive_their_parent(
    supervisor: Supervisor, log: Path, tmp_path: Path
) -> None:
    """Whatever a component started in its own group goes with it."""
    pid_file = tmp_path / "pid"
    command = ("/bin/sh", "-c", f"sleep 600 & echo $! > {pid_file}; echo up; wait")
    process = await started(supervisor, log, command)
    grandchild = Path("/proc") / pid_file.read_text().strip() / "cmdline"
    wait_until(lambda: b"sleep" in grandchild.read_bytes(), seconds=PATIENCE_SECONDS)
    await supervisor.stop([process], 1)
    wait_until(lambda: not words_of(grandchild), seconds=PATIENCE_SECONDS)


async def test_a_child_that_ends_while_starting_names_command_and_log(
    supervisor: Supervisor, log: Path
) -> None:
    async def never() -> bool:
        return False

    process = supervisor.start("child", ["/bin/sh", "-c", "echo no such key; exit 3"], log, {})
    with pytest.raises(SubstrateError) as failure:
        await until_ready(process, never, PATIENCE_SECONDS)
    for part in ("child ended with exit code 3", "no such key", str(log), "/bin/sh -c"):
        assert part in str(failure.value)


async def test_a_child_that_never_gets_ready_is_given_up(supervisor: Supervisor, log: Path) -> None:
    async def never() -> bool:
        return False

    process = await started(supervisor, log, SLEEPER)
    with pytest.raises(SubstrateError, match=r"child was not ready within 0\.1 s"):
        await until_ready(process, never, 0.1)


@pytest.mark.parametrize("content", [None, "not a program"])
async def test_a_binary_that_cannot_be_run_is_named(
    supervisor: Supervisor, log: Path, tmp_path: Path, content: str | None
) -> None:
    """Missing, or not executable: no traceback, but the command line and what is wrong with it."""
    if content is not None:
        (tmp_path / "binary").write_text(content)
    with pytest.raises(SubstrateError, match="child cannot be run: ") as failure:
        supervisor.start("child", [str(tmp_path / "binary"), "--flag"], log, {})
    assert f"{tmp_path / 'binary'} --flag" in str(failure.value)


async def test_a_child_gets_its_environment_and_the_marker_only(
    supervisor: Supervisor, run_id: str, log: Path
) -> None:
    """Proxies and the like of the caller's shell must not reach a measured component."""
    supervisor.start("child", ["/usr/bin/env"], log, {"GOGC": "200"})
    await supervisor.first_unexpected_exit()
    assert set(log_lines(log)) == {"GOGC=200", f"BIGFLEET_RUN={run_id}"}
