"""However a real run ends, it cleans up and leaves a report of its end."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.scaletest import TINY, WITHOUT_BIGFLEET, Scaletest, end_all

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


@pytest.fixture(autouse=True)
def no_run_goes_on() -> Iterator[None]:
    """A failing test ends its runs as well."""
    yield
    end_all()


def tiny(tmp_path: Path, *settings: str, ignore_interrupts: bool = False) -> Scaletest:
    """Such a run, beside other tests."""
    tempdir = tmp_path / "tmp"
    tempdir.mkdir()
    return Scaletest(
        tmp_path / "results",
        "smoke",
        *TINY,
        *settings,
        ignore_interrupts=ignore_interrupts,
        tempdir=tempdir,
    )


# One ending with BigFleet shows what it adds to them all: roles to stop, journals, open needs.
@pytest.mark.parametrize(
    ("moment", "settings"),
    [("  ramp", WITHOUT_BIGFLEET), ("  soak", ()), ("  settling", WITHOUT_BIGFLEET)],
)
def test_an_interruption_while_pods_bind_leaves_a_partial_report(
    tmp_path: Path, moment: str, settings: tuple[str, ...]
) -> None:
    """It reports the phase, exits with 130 and prints that all is cleaned up."""
    run = tiny(tmp_path, *settings)
    run.await_line(moment)
    run.child.send_signal(signal.SIGINT)
    assert run.exit_code() == 130, run.output
    summary = run.summary()
    assert (summary["verdict"], summary["exitCode"]) == ("error", 130)
    assert f"Interrupted ({moment.strip()})" in summary["why"][0]
    assert "covers only what ran" in (run.folder / "report.html").read_text()
    assert summary["pods"]["created"] == summary["pods"]["bound"] + summary["pods"]["neverBound"]
    assert "all is cleaned up" in run.output
    assert not run.left_overs()


def test_an_interruption_while_judging_leaves_the_complete_report(tmp_path: Path) -> None:
    """All was measured by then, so the verdict stands; the exit code is that of an interruption,
    also where a script had put the run into the background and SIGINT was ignored.
    """
    run = tiny(tmp_path, *WITHOUT_BIGFLEET, ignore_interrupts=True)
    run.await_line("judging")
    run.child.send_signal(signal.SIGINT)
    assert run.exit_code() == 130, run.output
    assert "the report is complete" in run.output
    summary = run.summary()
    assert summary["verdict"] != "error", run.output
    assert summary["pods"]["created"] >= 40
    assert not run.left_overs()


@pytest.mark.alone
def test_one_plan_is_played_with_and_without_anchors_and_both_are_judged(tmp_path: Path) -> None:
    """Each part has its summary, and each shows the other's figures beside its own. A missed gate
    ends it with 3 and a way to judge by other limits.
    """
    run = Scaletest.sound(tmp_path, "smoke", *TINY, "--set", "anchors=both")
    assert run.exit_code() == 3, run.output
    assert "to judge by other limits: loaddriver judge" in run.output
    on = run.summary()
    off = json.loads((run.folder / "anchors-off" / "summary.json").read_text())
    assert (on["run"]["anchors"], off["run"]["anchors"]) == ("on", "off")
    plans = [(run.folder / part / "plan.jsonl").read_bytes() for part in ("", "anchors-off")]
    assert plans[0] == plans[1]
    for summary in (on, off):
        pods = summary["pods"]  # churn may delete a pod that waits
        assert pods["bound"] + pods["withdrawn"] == pods["created"] >= 40
        assert summary["components"]["needsUnmetAtEnd"] == 0
        assert [side["anchors"] for side in summary["sideBySide"]] == ["on", "off"]
    assert off["gangs"]["anchored"] == 0
    assert on["gangs"]["count"] == off["gangs"]["count"]
    assert not run.left_overs()
