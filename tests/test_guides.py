"""What the documents point to is there, and what the table of constraints claims is tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    path
    for pattern in ("*.md", "docs/*.md", "docs/guides/*.md", "docs/design/*.md")
    for path in sorted(ROOT.glob(pattern))
]
CONSTRAINTS = ROOT / "docs" / "guides" / "scheduling-constraints.md"
# Inline links, and the definitions of those by name.
LINK = re.compile(r"\]\(([^)#:]+)\)|^\[[^]]+\]: (\S+)$", re.MULTILINE)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_within_the_repository_leads_somewhere(path: Path) -> None:
    """A document that was moved must not leave a dead link behind."""
    targets = [inline or named for inline, named in LINK.findall(path.read_text())]
    missing = [target for target in targets if not (path.parent / target).exists()]
    assert not missing


def rows() -> list[list[str]]:
    """The cells of each row of the table of constraints."""
    lines = CONSTRAINTS.read_text().splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if line[:1] == "|"]
    return [row for row in cells if row[1] not in ("Class", "---")]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_each_constraint_has_a_class_and_what_is_claimed_is_tested(row: list[str]) -> None:
    """Whoever relies on a row can see it hold; only feedback may do without."""
    _, served, _, tests, _ = row
    assert served in ("carried", "approximated", "feedback")
    assert served == "feedback" or re.search(r"\]\[[a-z-]+\]", tests)
    named = re.findall(r"\]\[([a-z-]+)\]", tests)
    assert all(f"\n[{name}]: " in CONSTRAINTS.read_text() for name in named)
