"""The house rules that a formatter cannot check; each failure says what to do instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILE_LINES = 300
FUNCTION_LINES = 60
# Longer for a stated reason; nothing may be added without one.
LONG_FILES: dict[str, str] = {
    "bigfleet/engine/kernels/selection.py": "kernels that call each other are compiled as one",
    "bigfleet/engine/placement/acquire.py": "the columns of a selection and what they are for",
    "bigfleet/engine/placement/topology.py": "every kind of constraint beside the others",
    "bigfleet/engine/state/cluster_packing.py": "one class: a cluster's machines and their pods",
    "bigfleet/engine/state/cycle_state.py": "one class: all that a decision changes",
}
LONG_FUNCTIONS: dict[str, str] = {}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def sources(*folders: str) -> list[Path]:
    found = (p for folder in folders for p in sorted((ROOT / folder).rglob("*.py")))
    return [p for p in found if not p.stem.endswith(("_pb2", "_pb2_grpc"))]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


OURS = sources("bigfleet", "loaddriver", "controlplane", "kind")
TESTS = sources("tests")


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", OURS, ids=name)
def test_a_file_has_one_job(path: Path) -> None:
    """A file of more than 300 lines does more than one job: split it, or say here why not."""
    lines = path.read_text().count("\n")
    assert lines <= FILE_LINES or name(path) in LONG_FILES, f"{name(path)} has {lines} lines"


@pytest.mark.parametrize("path", OURS, ids=name)
def test_a_function_fits_on_a_screen(path: Path) -> None:
    """A function longer than 60 lines hides its parts: give them names."""
    for function in functions(path):
        length = (function.end_lineno or 0) - function.lineno + 1
        where = f"{name(path)}:{function.name}"
        assert length <= FUNCTION_LINES or where in LONG_FUNCTIONS, f"{where}: {length} lines"


@pytest.mark.parametrize("path", OURS, ids=name)
def test_public_things_say_what_they_are(path: Path) -> None:
    """Modules, public classes and public module-level functions have a docstring."""
    tree = ast.parse(path.read_text())
    silent = [] if ast.get_docstring(tree) else ["the module"]
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if not node.name.startswith("_") and not ast.get_docstring(node):
            silent.append(node.name)
    assert not silent, f"{name(path)}: no docstring: {silent}"


@pytest.mark.parametrize("path", TESTS, ids=name)
def test_every_test_says_its_rule(path: Path) -> None:
    """A test's docstring, or a name of at least four words, is the rule that it holds."""
    silent = [
        f.name
        for f in functions(path)
        if f.name.startswith("test_") and not ast.get_docstring(f) and f.name.count("_") < 4
    ]
    assert not silent, f"{name(path)}: {silent}"


@pytest.mark.parametrize("path", OURS + [p for p in TESTS if p != Path(__file__)], ids=name)
def test_nothing_is_left_for_later_in_a_comment(path: Path) -> None:
    """Unfinished work is finished, or written down in docs/flaws.md where users see it."""
    assert not UNFINISHED.search(path.read_text()), name(path)
