"""What the table of scheduling constraints claims is tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CONSTRAINTS = Path(__file__).parent.parent / "docs" / "guides" / "scheduling-constraints.md"


def rows() -> list[list[str]]:
    """The cells of each row of the table of constraints."""
    lines = CONSTRAINTS.read_text().splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if line[:1] == "|"]
    return [row for row in cells if row[1] not in ("Class", "---")]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_each_constraint_has_a_class_and_each_claim_has_a_test(row: list[str]) -> None:
    """A user who relies on a row can see it tested; only feedback needs no test."""
    _, served, _, tests, _ = row
    assert served in ("carried", "approximated", "feedback")
    assert served == "feedback" or re.search(r"\]\[[a-z-]+\]", tests)
    named = re.findall(r"\]\[([a-z-]+)\]", tests)
    assert all(f"\n[{name}]: " in CONSTRAINTS.read_text() for name in named)
