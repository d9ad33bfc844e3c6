"""Writes a comparison: JSON and its schema, Markdown, JUnit and a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from loaddriver.compare.comparison import Comparison, json_schema
from loaddriver.compare.junit import render_compare_junit
from loaddriver.compare.markdown import render_markdown
from loaddriver.compare.page import render_compare_page
from loaddriver.report.replacing import replace_file

JSON, JSON_SCHEMA = "comparison.json", "comparison.schema.json"
MARKDOWN, JUNIT, PAGE = "comparison.md", "comparison.junit.xml", "comparison.html"


def write_comparison(folder: Path, found: Comparison) -> None:
    """Write all files into `folder`, each atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in _files(found).items():
        replace_file(folder / name, content)


def _files(found: Comparison) -> Mapping[str, bytes]:
    return {
        JSON: msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n",
        JSON_SCHEMA: json_schema() + b"\n",
        MARKDOWN: render_markdown(found).encode(),
        JUNIT: render_compare_junit(found),
        PAGE: render_compare_page(found).encode(),
    }
