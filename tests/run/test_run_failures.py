"""Every end of a run has an exit code and a sentence with the next step."""

from __future__ import annotations

import asyncio
import errno
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from bigfleet.kube.client import ApiError
from loaddriver.__main__ import main
from loaddriver.commands.common import NEXT_STEPS, print_verdicts
from loaddriver.errors import ExitCode, LoadProcessError, ProfileError
from loaddriver.run.arms import RunOutcome
from loaddriver.run.failures import failure_of, uninterrupted
from loaddriver.substrates.base import SubstrateError
from tests.run.run_rig import summary


async def ended(steps: Coroutine[Any, Any, None], folder: Path) -> tuple[ExitCode, str] | None:
    run_failure = await failure_of(steps, lambda: "soak", folder)
    return None if run_failure is None else (run_failure.exit_code, run_failure.sentence)


async def failing(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "code", "message"),
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
async def test_an_early_end_is_an_exit_code_and_a_sentence(
    tmp_path: Path, error: BaseException, code: ExitCode, message: str
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
    assert message in found[1]


async def test_a_bug_writes_its_traceback_to_a_file_and_not_to_the_screen(
    tmp_path: Path,
) -> None:
    found = await ended(failing(KeyError("k")), tmp_path)
    assert found is not None
    assert "Traceback" not in found[1]
    assert "KeyError" in (tmp_path / "runner-bug.txt").read_text()


async def test_judging_continues_on_a_stop_request_which_is_returned() -> None:
    """Also on two requests; afterwards the task can be cancelled again."""
    gate = asyncio.Event()

    async def judging() -> str:
        await gate.wait()
        return "judged"

    async def run() -> tuple[str, bool]:
        found = await uninterrupted(judging())
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
    assert await uninterrupted(asyncio.sleep(0, "calm")) == ("calm", False)


def test_every_exit_code_of_a_run_has_advice() -> None:
    of_comparisons = {ExitCode.REGRESSION, ExitCode.NOT_ENOUGH_DATA}
    assert NEXT_STEPS.keys() == set(ExitCode) - of_comparisons
    assert all(text.startswith("Next: ") for code, text in NEXT_STEPS.items() if code)


@pytest.mark.parametrize(
    ("codes", "skipped_arm", "expected"),
    [
        ((0, 0), "", ExitCode.PASS),
        ((0, 3), "", ExitCode.GATE_MISSED),
        ((3, 5), "", ExitCode.INVALID_RUN),
        ((0, 6), "", ExitCode.INFRASTRUCTURE),
        ((3, 130), "", ExitCode.INTERRUPTED),
        ((0,), "the bare arm", ExitCode.INTERRUPTED),
        ((1, 130), "", ExitCode.HARNESS_BUG),
    ],
)
def test_a_run_of_several_arms_has_the_most_severe_exit_code(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    codes: tuple[int, ...],
    skipped_arm: str,
    expected: ExitCode,
) -> None:
    own, *others = (summary(exit_code=code) for code in codes)
    comparisons = tuple((each, tmp_path / "bare") for each in others)
    outcome = RunOutcome(own, tmp_path, comparisons, skipped_arm, interrupted=bool(skipped_arm))
    assert print_verdicts(outcome) is expected
    output = capsys.readouterr().err
    assert output.count("report.html") == len(codes)
    assert skipped_arm in output


def test_an_interruption_after_the_measurement_keeps_the_verdict_but_exits_interrupted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C must end a loop of runs; the measurement is complete."""
    outcome = RunOutcome(summary(), tmp_path, interrupted=True)
    assert print_verdicts(outcome) is ExitCode.INTERRUPTED
    output = capsys.readouterr().err
    assert "PASS smoke-1" in output
    assert "the report is complete" in output


@pytest.mark.parametrize("code", [0, 1, 3, 5, 6, 130])
def test_the_command_exits_with_the_code_of_the_run_and_advice(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
) -> None:
    run = RunOutcome(summary(exit_code=code), tmp_path)
    monkeypatch.setattr("loaddriver.__main__.run_once", lambda _options: run)
    assert main(["run", "smoke"]) == code
    advice = NEXT_STEPS[ExitCode(code)].format(folder=tmp_path)
    assert (advice or "PASS") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ProfileError(["a: is wrong"]), 2, "a: is wrong"),
        (SubstrateError("etcd did not start"), 6, "etcd did not start"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), 6, "/x: Permission denied"),
        (KeyboardInterrupt(), 130, "everything is cleaned up"),
        (ZeroDivisionError("division"), 1, "please report it with"),
    ],
)
def test_an_error_before_the_run_has_its_exit_code_and_no_traceback(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    message: str,
) -> None:
    def fail(_options: object) -> None:
        raise error

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("loaddriver.__main__.run_once", fail)
    assert main(["run", "smoke"]) == code
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown
    reports = [path.read_text() for path in tmp_path.glob("loaddriver-bug-*.txt")]
    assert [("ZeroDivisionError" in text) for text in reports] == [True] * (code == 1)
