"""A comparison is written for machines, pull requests, CI systems and people."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from loaddriver.compare.comparison import Comparison, Fact, json_schema
from loaddriver.compare.exact import VOID_LIMIT, Void
from loaddriver.compare.junit import render_compare_junit
from loaddriver.compare.markdown import MARKER, MOST_LINES, render_markdown
from loaddriver.compare.outputs import JSON, write_comparison
from loaddriver.compare.page import render_compare_page
from tests.compare.compare_rig import compared, pairs_of

STORIES = Fact(name="stories", changed=True, sentence="2 of 6 <seeds>", lines=["-a", "+b"] * 20)


@pytest.fixture(scope="module")
def regression() -> Comparison:
    """HEAD's bindings are a fifth slower."""
    return compared(pairs_of(10, head={"scheduled": 1.2}), facts=[STORIES])


def loud() -> Comparison:
    """Everything at once: warnings, voids, facts, and no endpoint that is settled."""
    return compared(
        pairs_of(6, deviation=0.3),
        [Void("head", f"reason {number}") for number in range(VOID_LIMIT - 1)],
        warnings=[f"Forced: file {number} was changed" for number in range(30)],
        facts=[STORIES] * 20,
    )


def test_the_files_are_those_of_the_schema(regression: Comparison, tmp_path: Path) -> None:
    """What is written can be read again, and every field is in the schema."""
    write_comparison(tmp_path, regression)
    assert msgspec.json.decode((tmp_path / JSON).read_bytes(), type=Comparison) == regression
    schema = json.loads(json_schema())
    written = json.loads((tmp_path / JSON).read_text())
    assert written["attributed"] == "scheduled"
    assert written["exitCode"] == 4
    assert written.keys() == schema["$defs"]["Comparison"]["properties"].keys()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "comparison.json",
        "comparison.schema.json",
        "comparison.md",
        "comparison.junit.xml",
        "comparison.html",
    }


def test_a_comment_is_short_and_can_be_found_again(regression: Comparison) -> None:
    """The marker is its first line; a loud comparison has no more than 60 lines either."""
    for found in (regression, loud(), compared([])):
        lines = render_markdown(found).splitlines()
        assert lines[0] == MARKER
        assert len(lines) <= MOST_LINES
        assert "Least effect 10 %" in lines[-1], "the end is not cut"


def test_a_comment_says_what_changed_where_and_how_sure(regression: Comparison) -> None:
    text = render_markdown(regression)
    (row,) = (line for line in text.splitlines() if line.startswith("| from a ready node"))
    assert "**regression**" in row
    assert row.endswith("| scheduled |")
    assert "## Regression: v2 (bbbbbbbbbbbb) compared with v1 (aaaaaaaaaaaa)" in text
    assert "```diff" in text


def test_a_forced_comparison_says_so_on_top() -> None:
    found = compared(pairs_of(6), warnings=["Forced: r1: 1 changed since the run (pods.csv.gz)"])
    assert "pods.csv.gz" in "\n".join(render_markdown(found).splitlines()[:4])
    page = render_compare_page(found)
    assert page.index("pods.csv.gz") < page.index("<h1>")


def cases(found: Comparison) -> dict[str, set[str]]:
    root = ElementTree.fromstring(render_compare_junit(found))
    return {str(case.get("name")): {child.tag for child in case} for case in root.iter("testcase")}


def test_junit_fails_the_endpoint_that_regressed(regression: Comparison) -> None:
    found = cases(regression)
    assert found["from a ready node to the binding, geometric mean"] == {"failure"}
    assert found["CPU of BigFleet"] == set()
    assert len(found) == 6 + 3 + 1


def test_without_a_valid_pair_nothing_is_said_of_pods() -> None:
    """Neither that none was left unbound, nor a passed test case."""
    found = compared([], [Void("head", "busy")] * VOID_LIMIT)
    assert "No pod was left unbound" not in render_markdown(found)
    events = {each.name for each in found.events}
    assert {each.verdict for each in found.events} == {"not measured"}
    assert all(cases(found)[name] == {"skipped"} for name in events)


def test_junit_counts_what_is_in_it() -> None:
    """Unsettled endpoints are skipped, and too many voids are an error."""
    voids = [Void("base", "busy")] * (VOID_LIMIT // 2) + [Void("head", "busy")] * (VOID_LIMIT // 2)
    (suite,) = ElementTree.fromstring(
        render_compare_junit(compared(pairs_of(6, deviation=0.5), voids))
    )
    assert suite.get("errors") == "1"
    assert suite.get("failures") == "0"
    assert int(suite.get("skipped") or 0) == len(list(suite.iter("skipped"))) > 0
    assert suite.get("tests") == "10"


class Page(HTMLParser):
    """Counts what a page draws, and notes what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.circles = self.scripts = 0
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.circles += tag == "circle"
        self.scripts += tag == "script"
        self.loads += [v or "" for k, v in attrs if k in ("src", "href")]


def test_the_page_shows_every_run_as_a_dot(regression: Comparison) -> None:
    """Two for each pair and endpoint; without scripts, and without anything from elsewhere."""
    page = Page(render_compare_page(regression))
    assert page.circles == 6 * 2 * regression.pairs
    assert (page.scripts, page.loads) == (0, [])


@pytest.mark.parametrize("make", [lambda: compared([]), loud])
def test_a_page_of_little_or_much_is_drawn(make: Any) -> None:
    text = render_compare_page(make())
    assert "</html>" in text
    assert "nan" not in text
    assert "2 of 6 <seeds>" not in text, "text is escaped"
