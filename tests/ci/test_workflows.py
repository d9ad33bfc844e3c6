"""The files that users copy into their pipelines are valid, and none lets strangers in."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "docs" / "ci"
SCRIPTS = sorted(RECIPES.glob("*.sh"))
GITHUB = sorted(RECIPES.glob("github-*.yml"))
GITLAB = RECIPES / "gitlab-ci.yml"
TOOLS = Path(sys.prefix) / "bin"
EXPRESSION = re.compile(r"\$\{\{.*?\}\}")


def run(*command: object, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        input=text,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def name(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_scripts_are_free_of_what_shellcheck_knows(path: Path) -> None:
    found = run(TOOLS / "shellcheck", "--enable=all", "--exclude=SC2250,SC2312", path)
    assert not found.stdout, found.stdout


@pytest.mark.parametrize(
    ("schema", "path"),
    [*(("github-workflows", path) for path in GITHUB), ("gitlab-ci", GITLAB)],
    ids=lambda value: value.name if isinstance(value, Path) else value,
)
def test_workflows_follow_the_schema_of_their_system(schema: str, path: Path) -> None:
    """As published by both; GitLab's own tags are known to the checker."""
    options = ["--data-transform", "gitlab-ci"] if schema == "gitlab-ci" else []
    found = run(TOOLS / "check-jsonschema", "--builtin-schema", f"vendor.{schema}", *options, path)
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_schema_check_finds_a_misspelt_key(tmp_path: Path) -> None:
    """Else a checker that checks nothing would pass."""
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(GITHUB[0].read_text().replace("runs-on:", "run-on:"))
    command = [TOOLS / "check-jsonschema", "--builtin-schema", "vendor.github-workflows"]
    assert run(*command, wrong).returncode != 0


@pytest.mark.parametrize("path", GITHUB, ids=name)
def test_no_workflow_can_be_turned_against_its_repository(path: Path) -> None:
    """Actions are pinned, text of strangers is no code, and rights are as narrow as can be."""
    found = run(TOOLS / "zizmor", "--offline", "--no-progress", "--no-config", path)
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_audit_finds_an_injection(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    told = 'docs/ci/compare.sh "${{ github.head_ref }}"'
    wrong.write_text(GITHUB[1].read_text().replace('docs/ci/compare.sh "$TARGET"', told))
    found = run(TOOLS / "zizmor", "--offline", "--no-progress", "--no-config", wrong)
    assert found.returncode != 0
    assert "template-injection" in found.stdout


def steps(path: Path) -> Iterator[str]:
    """The shell scripts inside a workflow; expressions become a word."""
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    for job in found.get("jobs", found).values():
        if not isinstance(job, dict):
            continue
        yield from (EXPRESSION.sub("x", s["run"]) for s in job.get("steps", []) if "run" in s)
        for part in ("before_script", "script", "after_script"):
            if part in job:
                yield "\n".join(job[part])


@pytest.mark.parametrize("path", [*GITHUB, GITLAB], ids=name)
def test_scripts_inside_workflows_are_free_of_what_shellcheck_knows(path: Path) -> None:
    scripts = list(steps(path))
    assert scripts
    for script in scripts:
        found = run(TOOLS / "shellcheck", "--shell=bash", "-", text=script)
        assert not found.stdout, found.stdout


@pytest.mark.parametrize("path", [*SCRIPTS, *GITHUB, GITLAB], ids=name)
def test_each_file_to_copy_has_a_page_that_links_to_it(path: Path) -> None:
    pages = [page.read_text() for page in RECIPES.glob("*.md")]
    assert any(f"]({path.name})" in page for page in pages)


@pytest.mark.parametrize("path", [*GITHUB, GITLAB], ids=name)
def test_workflows_call_scripts_that_exist_and_cache_the_binaries(path: Path) -> None:
    text = path.read_text()
    called = set(re.findall(r"docs/ci/[\w-]+\.sh", text))
    assert called
    assert all((ROOT / script).stat().st_mode & 0o111 for script in called)
    # A runner that is kept has its cache already.
    assert "cache/bigfleet" in text or "self-hosted" in text
