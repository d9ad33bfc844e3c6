"""However a run ends, it has its exit code, and a sentence that says what to do."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from run_rig import summary

from bigfleet.api.kube.client import ApiError
from loaddriver.commands.advice import ADVICE
from loaddriver.commands.running import conclude_all
from loaddriver.errors import ExitCode, LoadProcessError, ProfileError
from loaddriver.run.accidents import accident_of, undisturbed
from loaddriver.run.parts import Outcome
from loaddriver.substrates.base import SubstrateError


async def ended(steps: Coroutine[Any, Any, None], folder: Path) -> tuple[ExitCode, str] | None:
    accident = await accident_of(steps, lambda: "soak", folder)
    return None if accident is None else (accident.exit_code, accident.sentence)


async def failing(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (SubstrateError("etcd did not start"), ExitCode.INFRASTRUCTURE, "etcd did not start"),
        (LoadProcessError("it ended"), ExitCode.INFRASTRUCTURE, "it ended"),
        (ProfileError(["a: is wrong"]), ExitCode.USAGE, "a: is wrong"),
        (ApiError("GET /x", 500, "Boom", "no"), ExitCode.INFRASTRUCTURE, "GET /x"),
        (ConnectionResetError("cut"), ExitCode.INFRASTRUCTURE, "cut"),
        (
            OSError(errno.ENOSPC, "full", "/x"),
            ExitCode.INFRASTRUCTURE,
            "disk is full: /x. Make room",
        ),
        (asyncio.CancelledError(), ExitCode.INTERRUPTED, "Interrupted (soak)"),
        (ZeroDivisionError("division"), ExitCode.HARNESS_BUG, "please report it with"),
    ],
)
async def test_whatever_ends_a_run_early_is_an_exit_code_and_a_sentence(
    tmp_path: Path, error: BaseException, code: ExitCode, said: str
) -> None:
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.create_task(ended(asyncio.sleep(60), tmp_path))
        await asyncio.sleep(0)
        task.cancel()
        found = await task
    else:
        found = await ended(failing(error), tmp_path)
    assert found is not None
    assert found[0] is code
    assert said in found[1]


async def test_a_bug_of_ours_leaves_its_traceback_in_a_file_and_not_on_the_screen(
    tmp_path: Path,
) -> None:
    found = await ended(failing(KeyError("k")), tmp_path)
    assert found is not None
    assert "Traceback" not in found[1]
    assert "KeyError" in (tmp_path / "runner-bug.txt").read_text()


async def test_judging_goes_on_when_asked_to_stop_and_the_wish_is_remembered() -> None:
    """Also when asked twice; afterwards the task can be asked anew."""
    gate = asyncio.Event()

    async def judging() -> str:
        await gate.wait()
        return "judged"

    async def run() -> tuple[str, bool]:
        found = await undisturbed(judging())
        await asyncio.sleep(0)
        return found

    task = asyncio.create_task(run())
    for _ in range(2):
        await asyncio.sleep(0.01)
        task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done()
    gate.set()
    assert await task == ("judged", True)
    assert await undisturbed(asyncio.sleep(0, "calm")) == ("calm", False)


def test_every_exit_code_says_what_to_do() -> None:
    assert ADVICE.keys() == set(ExitCode)
    assert all(text.startswith("To do: ") for code, text in ADVICE.items() if code)


@pytest.mark.parametrize(
    ("codes", "unfinished", "expected"),
    [
        ((0, 0), "", ExitCode.PASS),
        ((0, 3), "", ExitCode.GATE_MISSED),
        ((3, 5), "", ExitCode.INVALID_RUN),
        ((0, 6), "", ExitCode.INFRASTRUCTURE),
        ((3, 130), "", ExitCode.INTERRUPTED),
        ((0,), "the bare part", ExitCode.INTERRUPTED),
        ((1, 130), "", ExitCode.HARNESS_BUG),
    ],
)
def test_a_run_of_several_parts_ends_as_the_gravest_of_them(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    codes: tuple[int, ...],
    unfinished: str,
    expected: ExitCode,
) -> None:
    own, *others = (summary(exit_code=code) for code in codes)
    beside = tuple((each, tmp_path / "bare") for each in others)
    assert conclude_all(Outcome(own, tmp_path, beside, unfinished)) is expected
    said = capsys.readouterr().err
    assert said.count("report.html") == len(codes)
    assert unfinished in said
