"""The house rules that a formatter cannot check; each failure says what to do instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
FILE_LINES = 300
FUNCTION_LINES = 60
# Longer for a stated reason; nothing may be added without one.
LONG_FILES: dict[str, str] = {
    "bigfleet/observe/metrics.py": "a list: every metric is defined once, here",
    "bigfleet/services/shard/fleet/inventory.py": "one class: what is known of each machine",
}
LONG_FUNCTIONS: dict[str, str] = {}
SMALL_LINES = 60
# Smaller, with a sibling as its only importer, for a stated reason.
SMALL_FILES: dict[str, str] = {
    "bigfleet/audit/collect/fleet.py": "reads two of the parts, as its neighbours read others",
    "bigfleet/conformance/rules/latency.py": "the rules of one promise, as its neighbours are",
    "bigfleet/conformance/rules/readiness.py": "the rules of one promise, as its neighbours are",
    "bigfleet/conformance/rules/retries.py": "the rules of one promise, as its neighbours are",
    "bigfleet/conformance/rules/taints.py": "the rules of one promise, as its neighbours are",
    "bigfleet/services/provider/spot_market.py": "pure and seeded; its importer runs tasks",
    "kind/images/packages.py": "installs packages; its importer lays out a build context",
    "kind/network.py": "shared by all clusters; its importer is one cluster",
    "kind/nodeimage/kind_files.py": "what kind expects; its importer builds",
    "loaddriver/compare/junit.py": "one output format",
    "loaddriver/judge/bands.py": "one section of a summary",
    "loaddriver/judge/requests.py": "one section of a summary",
    "loaddriver/load/kubeconfigs.py": "pure; its importer is run by Locust",
    "loaddriver/profile/load.py": "the settings of one part, as its neighbours are",
    "loaddriver/run/federation.py": "for profiles with a federation only",
    "loaddriver/run/remote_cpu.py": "of other machines; its importer reads processes of this one",
    "loaddriver/report/table.py": "one output format",
}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def sources(*folders: str) -> list[Path]:
    found = (p for folder in folders for p in sorted((ROOT / folder).rglob("*.py")))
    return [p for p in found if not p.stem.endswith(("_pb2", "_pb2_grpc"))]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


OURS = sources("bigfleet", "loaddriver", "controlplane", "kind")
TESTS = sources("tests")


class Function(NamedTuple):
    name: str
    lines: int
    documented: bool


class Read(NamedTuple):
    """What the rules ask of a file: all syntax trees at once would take gigabytes of memory."""

    lines: int
    functions: tuple[Function, ...]
    imported: frozenset[str]
    silent: tuple[str, ...]
    unfinished: bool


@cache
def read(path: Path) -> Read:
    text = path.read_text()
    tree = ast.parse(text)
    functions: list[Function] = []
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            functions.append(Function(node.name, length, bool(ast.get_docstring(node))))
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
    return Read(
        text.count("\n"),
        tuple(functions),
        frozenset(imported),
        tuple(silent(tree)),
        bool(UNFINISHED.search(text)),
    )


def silent(tree: ast.Module) -> Iterator[str]:
    """The public things of a module that have no docstring."""
    if not ast.get_docstring(tree):
        yield "the module"
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if not node.name.startswith("_") and not ast.get_docstring(node):
            yield node.name


@pytest.mark.parametrize("path", OURS, ids=name)
def test_a_file_has_one_job(path: Path) -> None:
    """A file of more than 300 lines does more than one job: split it, or say here why not."""
    lines = read(path).lines
    assert lines <= FILE_LINES or name(path) in LONG_FILES, f"{name(path)} has {lines} lines"


def importers() -> Mapping[str, set[str]]:
    """By module, the modules that import it; a package stands for its __init__."""
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in OURS}
    found: dict[str, set[str]] = {module: set() for module in modules}
    for module, path in modules.items():
        for each in read(path).imported & found.keys():
            found[each].add(module)
    return found


def test_a_small_module_is_more_than_a_part_of_its_neighbour() -> None:
    """One that only a sibling imports belongs into it, or has a reason here to stay."""
    small = set()
    for module, users in importers().items():
        path = ROOT / f"{module.replace('.', '/')}.py"
        siblings = [user for user in users if user.rpartition(".")[0] == module.rpartition(".")[0]]
        is_part = path.stem != "__init__" and len(users) == len(siblings) == 1
        if is_part and read(path).lines < SMALL_LINES:
            small.add(name(path))
    assert not small - set(SMALL_FILES), "fold each into its importer, or say why it stays"
    assert not set(SMALL_FILES) - small, "these are no longer small, or have other importers"


@pytest.mark.parametrize("path", OURS, ids=name)
def test_a_function_fits_on_a_screen(path: Path) -> None:
    """A function longer than 60 lines hides its parts: give them names."""
    for function in read(path).functions:
        where = f"{name(path)}:{function.name}"
        short = function.lines <= FUNCTION_LINES or where in LONG_FUNCTIONS
        assert short, f"{where}: {function.lines} lines"


@pytest.mark.parametrize("path", OURS, ids=name)
def test_public_things_say_what_they_are(path: Path) -> None:
    """Modules, public classes and public module-level functions have a docstring."""
    assert not read(path).silent, f"{name(path)}: no docstring: {read(path).silent}"


@pytest.mark.parametrize("path", TESTS, ids=name)
def test_every_test_says_its_rule(path: Path) -> None:
    """A test's docstring, or a name of at least four words, is the rule that it holds."""
    unsaid = [
        f.name
        for f in read(path).functions
        if f.name.startswith("test_") and not f.documented and f.name.count("_") < 4
    ]
    assert not unsaid, f"{name(path)}: {unsaid}"


@pytest.mark.parametrize("path", TESTS, ids=name)
def test_what_tests_share_is_in_a_module_without_tests(path: Path) -> None:
    """Else a change of one test breaks another, and pytest collects the fixtures of both."""
    assert not re.findall(r"^\s*from tests\.(?:\w+\.)*test_\w+ import", path.read_text(), re.M)


@pytest.mark.parametrize("path", OURS + [p for p in TESTS if p != Path(__file__)], ids=name)
def test_nothing_is_left_for_later_in_a_comment(path: Path) -> None:
    """Unfinished work is finished, or written down in docs/flaws.md where users see it."""
    assert not read(path).unfinished, name(path)
