"""report.html stands alone: it opens from disk, loads nothing, and shows the whole run."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from loaddriver.errors import ExitCode
from loaddriver.judge.facts import InvalidReason, RunFailure
from loaddriver.judge.schema import Summary
from loaddriver.judge.summary import make_summary
from loaddriver.report.page import render_page
from tests.report.report_rig import FILES, Run, judged, make_run

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--v=0",
)
VOID = {
    "area",
    "base",
    "br",
    "circle",
    "col",
    "hr",
    "img",
    "input",
    "line",
    "link",
    "meta",
    "path",
    "rect",
}


@pytest.fixture(scope="module")
def run() -> Run:
    """A run in which some pods were never bound."""
    return make_run(400, lost=2)


class Reader(HTMLParser):
    """Collects what a page refers to, and checks that its elements are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []
        self.text = ""
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [
            v or "" for k, v in attrs if k in ("src", "href", "xlink:href", "action")
        ]
        assert tag != "script"
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def finished(self) -> bool:
        return not self._open


def parsed(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert reader.finished()
    return reader


def test_the_page_refers_to_nothing_but_the_files_beside_it(run: Run) -> None:
    """No script, no font, no picture, no style from anywhere else."""
    page = render_page(run.summary, FILES)
    assert parsed(page).references == ["summary.json"]
    assert not re.search(r"https?:|//[a-z]|@import|url\(", page)


def test_the_page_says_verdict_and_reason_first(run: Run) -> None:
    """Before any figure."""
    text = parsed(render_page(run.summary, FILES)).text
    reason = text.index("No pod was left unbound: 4 pods; the limit is exactly 0 pods.")
    assert text.index("Fail") < reason < text.index("Pods bound")


def test_the_page_marks_bounds_as_bounds(run: Run) -> None:
    """Nobody may take the longest time watched for the slowest pod."""
    assert "\u2265\u202f1" in parsed(render_page(run.summary, FILES)).text


def test_what_a_run_names_cannot_break_the_page(run: Run) -> None:
    """Names come from profiles and machines: they are text, never markup."""
    summary = judged(run, profile="<b>&\"'</b>", versions={"<i>": "</dd>"})
    assert "<b>&\"'</b>" in parsed(render_page(summary, FILES)).text


def shown(run: Run) -> dict[str, Summary]:
    dead = RunFailure(ExitCode.INFRASTRUCTURE, "c0/kube-scheduler was killed by SIGKILL.")
    nothing = make_summary(run.facts, [], [], [])
    return {
        "fail": run.summary,
        "pass": make_run(400).summary,
        "invalid": judged(run, invalid_reasons=(InvalidReason("The clock stepped by 2 s."),)),
        "error": judged(run, run_failure=dead),
        "unsoaked": judged(run, soak_started_micros=None),
        "nothing": nothing,
    }


@pytest.mark.parametrize("name", ["fail", "pass", "invalid", "error", "unsoaked", "nothing"])
def test_every_kind_of_run_has_a_page(run: Run, name: str) -> None:
    """Also one that saw nothing at all."""
    summary = shown(run)[name]
    text = parsed(render_page(summary, FILES)).text
    assert summary.run.id in text
    assert "nan" not in text.lower().split()


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt-get install chromium")
@pytest.mark.parametrize("width", [400, 1280])
def test_a_browser_shows_the_page_without_complaint(run: Run, width: int, tmp_path: Path) -> None:
    """Opened from disk: nothing on the console, no scrolling sideways, a chart for its width."""
    page = tmp_path / "report.html"
    probe = (
        "<script>addEventListener('load', () => { const d = document;"
        "d.body.dataset.sideways = d.documentElement.scrollWidth - d.documentElement.clientWidth;"
        "d.body.dataset.charts = [...d.querySelectorAll('svg')]"
        ".filter(e => e.getBoundingClientRect().width > 0).length; });</script>"
    )
    # Headless windows are at least 500 px wide, so a narrow page is shown in a frame.
    (tmp_path / "inner.html").write_text(render_page(run.summary, FILES) + probe)
    page.write_text(
        f"<body><iframe id=f width={width} height=900 src=inner.html></iframe><script>"
        "f.onload = () => { Object.assign(document.body.dataset, f.contentDocument.body.dataset) };"
        "</script>"
    )
    assert CHROMIUM is not None
    seen = subprocess.run(
        [CHROMIUM, *QUIET, f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,1000",
         "--allow-file-access-from-files", "--virtual-time-budget=3000", "--dump-dom",
         page.as_uri()],
        capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in seen.stderr, seen.stderr
    assert 'data-sideways="0"' in seen.stdout, seen.stdout[:600]
    assert 'data-charts="5"' in seen.stdout, seen.stdout[:600]
