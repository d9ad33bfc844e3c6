"""Links, paths, commands, flags, metrics and keys that the documents mention exist."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest

import bigfleet.__main__
import loaddriver.__main__

ROOT = Path(__file__).parent.parent
FOLDERS = ("", "guides/", "design/", "ci/")
DOCUMENTS = [
    path
    for pattern in (
        "*.md",
        "docs/*.md",
        "docs/guides/*.md",
        "docs/design/*.md",
        "docs/ci/*.md",
        "charts/*/README.md",
    )
    for path in sorted(ROOT.glob(pattern))
]
# The changelog also names what older releases had.
CURRENT = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]
# Files that a process writes at run time, and files of other projects.
ELSEWHERE = {
    "demand.json",
    "east-values.yaml",
    "fleet-values.yaml",
    "images.yaml",
    "issuer.yaml",
    "operator.json",
    "comparison.json",
    "comparison.md",
    "comparison.schema.json",
    "manifest.json",
    "my-limits.yaml",
    "ownership.json",
    "removals.json",
    "session.json",
    "summary.json",
    "cluster-trace-v2018/trace_2018.md",
    "deployer/commands/generate/resource_allocation/daemonset_requests.yaml",
}
# Inline links, and the definitions of those by name.
LINK = re.compile(r"\]\(([^)#:]+)\)|^\[[^]]+\]: (\S+)$", re.MULTILINE)
INLINE = re.compile(r"`([^`]+)`")
BLOCK = re.compile(r"^(?:    [^\n]*\n)+|^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"(?<![\w/.*<>-])[\w./-]+\.(?:py|yaml|proto|json|md|toml)(?![\w*<>])")
FOLDER = re.compile(
    r"^(?:bigfleet|charts|loaddriver|controlplane|kind|tests|profiles|docs|examples)/\S*$"
)
PROGRAMS = {"bigfleet": bigfleet.__main__.main, "loaddriver": loaddriver.__main__.main}


@cache
def tracked() -> tuple[str, ...]:
    listing = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return tuple(listing.stdout.split())


@cache
def sources() -> str:
    """All product code, tests and settings, without generated and golden files."""
    kinds = (".py", ".proto", ".yaml", ".json", ".toml", "Makefile", "Containerfile", ".j2")
    files = [
        name
        for name in tracked()
        if name.endswith(kinds) and "golden" not in name and "_pb2" not in name
    ]
    return "\n".join((ROOT / name).read_text() for name in files if (ROOT / name) != Path(__file__))


@cache
def words() -> frozenset[str]:
    return frozenset(re.findall(r"[A-Za-z_]\w*", sources()))


def code_of(path: Path) -> Iterator[str]:
    """Inline code, then each line of the indented and fenced blocks."""
    text = path.read_text()
    yield from (" ".join(code.split()) for code in INLINE.findall(BLOCK.sub("", text)))
    for block in BLOCK.finditer(text):
        joined = (block[1] or block[0]).replace("\\\n", " ")
        yield from (line.strip() for line in joined.splitlines())


def in_tree(name: str) -> bool:
    return any(f"/{file}".endswith(f"/{name}") for file in tracked())


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_within_the_repository_leads_somewhere(path: Path) -> None:
    """A document that was moved must not leave a dead link behind."""
    targets = [inline or named for inline, named in LINK.findall(path.read_text())]
    missing = [target for target in targets if not (path.parent / target).exists()]
    assert not missing


def anchors(path: Path) -> set[str]:
    """What `#...` may name in a document: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_to_a_heading_finds_it(path: Path) -> None:
    links = re.findall(r"\]\(([\w./-]*)#([^)]+)\)", path.read_text())
    missing = [
        f"{file}#{heading}"
        for file, heading in links
        if not file.startswith("http")
        and heading not in anchors(path.parent / file if file else path)
    ]
    assert not missing


@pytest.mark.parametrize("path", CURRENT, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_and_folder_in_backticks_exists(path: Path) -> None:
    """Documents name files by their path, or by its end where that is clear."""
    inline = INLINE.findall(BLOCK.sub("", path.read_text()))
    files = {file for code in inline for file in FILE.findall(code)}
    missing = {file for file in files - ELSEWHERE if not in_tree(file)}
    folders = {code.rstrip("/") for code in inline if FOLDER.match(code) and "<" not in code}
    missing |= {folder for folder in folders if not (ROOT / folder.split(":")[0]).exists()}
    assert not missing


@cache
def help_of(program: str, *words: str) -> str:
    """What a command's --help prints; "" if there is no such command."""
    shown, rejected = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(shown),
        contextlib.redirect_stderr(rejected),
        contextlib.suppress(SystemExit),
    ):
        PROGRAMS[program]([*words, "--help"])
    return shown.getvalue()


def unknown_in(command: list[str]) -> list[str]:
    """The words of a command that its parser does not know."""
    words = list(takewhile(lambda word: not word.startswith("--"), command))
    shown = help_of(*words)
    if not shown:
        return words
    flags = {word.split("=")[0] for word in command if word.startswith("--")}
    return sorted(flag for flag in flags if not re.search(rf"{flag}\b(?!-)", shown))


def commands_in(path: Path) -> Iterator[list[str]]:
    for code in code_of(path):
        line = re.sub(r"^(?:\$ )?(?:\.venv/bin/)", "", code.split(" #")[0].split("  ")[0])
        if line.split(" ")[0] in PROGRAMS:
            yield shlex.split(line.replace("...", "").replace("'", ""))


@pytest.mark.parametrize("path", CURRENT, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_is_one_that_the_parser_takes(path: Path) -> None:
    unknown = {" ".join(c): bad for c in commands_in(path) if (bad := unknown_in(c))}
    assert not unknown


def test_every_target_of_the_makefile_runs_a_command_that_the_parser_takes() -> None:
    """A user who types `make conformance` never sees the flag that it passes."""
    targets = re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    recipes = subprocess.run(
        ["make", "--dry-run", "POOLS=pool.json", *targets],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.replace("\\\n", "")
    found = re.findall(rf"^\.venv/bin/((?:{'|'.join(PROGRAMS)}) .*)$", recipes, re.MULTILINE)
    commands = [shlex.split(command) for command in found]
    assert {"run", "compare", "conformance"} <= {words[1] for words in commands}
    assert not {" ".join(c): bad for c in commands if (bad := unknown_in(c))}


@pytest.mark.parametrize("path", CURRENT, ids=lambda path: str(path.relative_to(ROOT)))
def test_flags_metrics_targets_and_keys_exist(path: Path) -> None:
    """Each is spelt somewhere in the sources, whatever the document says around it."""
    code = list(code_of(path))
    flags = {flag for text in code for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)}
    missing = {flag for flag in flags if not spelt(flag)}
    metrics = {name for text in code for name in re.findall(r"\bbigfleet_\w+", text)}
    missing |= {name for name in metrics if name not in words()}
    targets = {name for text in code for name in re.findall(r"^make ([a-z][a-z-]*)", text)}
    makefile = (ROOT / "Makefile").read_text()
    missing |= {name for name in targets if not re.search(rf"^{name}:", makefile, re.MULTILINE)}
    keys = {
        key
        for text in INLINE.findall(path.read_text())
        if re.fullmatch(r"[a-z]\w*(?:\.[a-z]\w*)+", text) and not FILE.fullmatch(text)
        for key in text.split(".")
    }
    missing |= {key for key in keys if not {key, snake(key)} & words()}
    assert not missing


def spelt(flag: str) -> bool:
    """A flag as a literal, or derived from the field that it sets."""
    return f'"{flag}"' in sources() or flag[2:].replace("-", "_") in words()


def snake(name: str) -> str:
    """A key of a JSON document as the attribute that it is written from."""
    return re.sub(r"(?<!^)[A-Z]", lambda found: f"_{found[0].lower()}", name)


def test_where_is_what_names_what_is_there() -> None:
    """Each row of ARCHITECTURE.md's "Where is ...?" names a file and what it defines."""
    section = (ROOT / "ARCHITECTURE.md").read_text().split("## Where is ...?")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| `([^`|]+)` \| ([^|]+) \|$", section, re.MULTILINE)
    assert len(rows) >= 10
    for question, file, names in rows:
        text = (ROOT / file).read_text()
        for name in INLINE.findall(names):
            defined = rf"\b(?:def|class) {name.split('.')[-1]}\b|^{name}\b"
            assert re.search(defined, text, re.MULTILINE), f"{question} {file} lacks {name}"
