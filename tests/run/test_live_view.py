"""The live view fits a terminal; elsewhere it prints lines."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from loaddriver.judge.percentiles import AtLeast
from loaddriver.run.live_view import LineView, Progress, line, panel, view_on

BUSY = Progress(
    profile="a-profile-with-a-long-name",
    phase="ramp 12/20, waiting",
    elapsed_seconds=4000,
    remaining_seconds=7300,
    fraction_done=0.4,
    pods_planned=500_000,
    pods_created=240_500,
    pods_bound=230_000,
    backlog=10_500,
    binds_per_second=1212.34,
    p50=3.4,
    p99=AtLeast(1012.1),
    nodes={"ready": 2200, "joining": 500, "leaving": 40},
    shortfalls=3,
    note="the next step waits: " + "many pods " * 20,
)
CALM = Progress("smoke", "setup", 0.2, None, 0, 200, 0, 0, 0, 0.0)


@pytest.mark.parametrize("progress", [BUSY, CALM], ids=["busy", "calm"])
def test_the_panel_fits_eighty_columns(progress: Progress) -> None:
    """Nothing is wrapped, whatever the numbers."""
    console = Console(file=io.StringIO(), width=80)
    with console.capture() as shown:
        console.print(panel(progress))
    lines = shown.get().splitlines()
    assert len(lines) == 6 + bool(progress.note)
    assert all(len(each) <= 80 for each in lines)


def test_the_panel_shows_the_essentials() -> None:
    """Phase, progress, remaining time, counts, percentiles, nodes, shortfalls."""
    console = Console(file=io.StringIO(), width=80)
    with console.capture() as shown:
        console.print(panel(BUSY))
    text = shown.get()
    for part in ("ramp 12/20", "1:06:40, about 2:01:40 left", "240,500 of 500,000", "230,000",
                 "10,500 pods", "1,212.3 pods/s", "3.40s", ">=1012.10s", "2,200 ready",
                 "shortfalls"):  # fmt: skip
        assert part in text


def test_a_load_of_requests_is_not_called_pods() -> None:
    """They are acknowledged, not bound."""
    asked = replace(BUSY, of_requests=True)
    console = Console(file=io.StringIO(), width=80)
    with console.capture() as shown:
        console.print(panel(asked))
    assert "acknowledged" in line(asked)
    assert "1,212.3 requests/s" in shown.get()
    assert "pods" not in shown.get().replace("many pods", "")
    assert all(len(each) <= 80 for each in shown.get().splitlines())


def test_an_unknown_value_is_a_dash() -> None:
    """Not a zero."""
    assert "p50 -  p99 -" in line(CALM)
    assert "shortfalls -" in line(CALM)


def test_lines_come_every_five_seconds_and_with_each_phase() -> None:
    """However often the runner reports."""
    stream = io.StringIO()
    with view_on(stream) as view:
        assert isinstance(view, LineView)
        for tenth in range(121):
            phase = "ramp 1/2" if tenth < 70 else "soak"
            view.show(replace(CALM, elapsed_seconds=tenth / 10, phase=phase))
        view.say("done")
    lines = [each.split("  created")[0].strip() for each in stream.getvalue().splitlines()]
    assert lines == ["0:00  ramp 1/2", "0:05  ramp 1/2", "0:07  soak", "0:12  soak", "done"]
