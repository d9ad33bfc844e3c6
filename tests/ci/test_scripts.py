"""The scripts of docs/ci from end to end, in a checkout of their own.

Everything is real but what measures for minutes: `loaddriver doctor`, `run` and `compare`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from loaddriver.history.files import append, path_of, read_history
from loaddriver.history.record import Line, line_of
from tests.history.history_rig import results
from tests.report.report_rig import Run, judged, make_run
from tests.support.git import git

ROOT = Path(__file__).parents[2]
PREFIX = Path(sys.prefix)
COMMENT = "<!-- loaddriver compare -->\n## Not worse\n"


@dataclass
class Checkout:
    """A clone with one commit more than `target`, whose measuring commands are stood in for."""

    folder: Path
    codes: dict[str, int] = field(default_factory=dict)

    def git(self, *arguments: str) -> str:
        """Run git in it."""
        return git(self.folder, *arguments).strip()

    def script(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one of the scripts as a pipeline does, from elsewhere."""
        (self.folder / "build" / "codes").write_text(
            "".join(f"{command} {code}\n" for command, code in self.codes.items())
        )
        environment = {**os.environ, "SUMMARY": str(self.summary), "PROFILE": "smoke"}
        script, *rest = words
        return subprocess.run(
            [str(self.folder / "docs" / "ci" / script), *rest],
            cwd=self.folder.parent,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )

    @property
    def summary(self) -> Path:
        """Where the outcome is shown."""
        return self.folder / "build" / "summary.md"

    def calls(self) -> list[str]:
        """The measuring commands so far, in order."""
        path = self.folder / "build" / "calls"
        return path.read_text().splitlines() if path.exists() else []


# Stands in for commands that measure, and passes all others on.
STAND_IN = f"""#!/usr/bin/env bash
set -euo pipefail
code=$(awk -v c="$1" '$1 == c {{ print $2 }}' build/codes)
case $1 in
  doctor | run | compare) echo "$*" >>build/calls ;;
  *) exec {PREFIX}/bin/python -P -m loaddriver "$@" ;;
esac
if [[ $1 == run ]]; then
  mkdir -p results && ln -sfn "$PWD/build/run" results/latest
elif [[ $1 == compare ]]; then
  folder=build/comparison/compare-20261123-120000
  mkdir -p "$folder" && cp build/comment.md "$folder/comparison.md"
fi
exit "${{code:-0}}"
"""


@pytest.fixture(scope="module")
def run() -> Run:
    return make_run(400)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """With an environment that only differs in its `loaddriver`."""
    folder = tmp_path / "checkout"
    clone = ["git", "clone", "--quiet", "--shared", str(ROOT), str(folder)]
    subprocess.run(clone, check=True, capture_output=True)
    made = Checkout(folder)
    made.git("branch", "target")
    for name in ("docs/ci", "controlplane"):
        shutil.copytree(ROOT / name, folder / name, dirs_exist_ok=True)
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy2(ROOT / name, folder / name)
    made.git("add", ".")
    made.git("commit", "--quiet", "--allow-empty", "--message", "a change")
    _environment(folder / ".venv")
    (folder / "build").mkdir()
    (folder / "build" / "comment.md").write_text(COMMENT)
    return made


def _environment(folder: Path) -> None:
    (folder / "bin").mkdir(parents=True)
    for name in ("lib", "pyvenv.cfg"):
        (folder / name).symlink_to(PREFIX / name)
    for path in (PREFIX / "bin").iterdir():
        (folder / "bin" / path.name).symlink_to(path)
    (folder / "bin" / "loaddriver").unlink()
    (folder / "bin" / "loaddriver").write_text(STAND_IN)
    (folder / "bin" / "loaddriver").chmod(0o755)
    # The mark of the Makefile that these packages are installed.
    stamp = "cksum requirements.lock pyproject.toml | cksum | cut -d' ' -f1"
    found = subprocess.run(
        stamp, shell=True, cwd=folder.parent, check=True, capture_output=True, text=True
    )
    (folder / f".ready-{found.stdout.strip()}").touch()


def test_a_change_is_compared_with_the_point_where_it_left_its_target(checkout: Checkout) -> None:
    """Not with the target's newest commit, which may have moved on."""
    base, head = checkout.git("rev-parse", "target"), checkout.git("rev-parse", "HEAD")
    checkout.git("switch", "--quiet", "target")
    checkout.git("commit", "--quiet", "--allow-empty", "--message", "somebody else's")
    checkout.git("switch", "--quiet", "-")
    checkout.codes["compare"] = 4
    done = checkout.script("compare.sh", "target")
    assert done.returncode == 4, done.stderr
    doctor, compare = checkout.calls()
    assert doctor == "doctor smoke"
    assert compare.startswith(f"compare --base {base} --head {head} --profile smoke --out ")
    assert checkout.summary.read_text() == COMMENT


def test_a_machine_that_cannot_measure_is_refused_before_anything_is_run(
    checkout: Checkout,
) -> None:
    checkout.codes["doctor"] = 2
    assert checkout.script("compare.sh", "target").returncode == 2
    history = str(checkout.folder / "build" / "history")
    assert checkout.script("baseline.sh", "check", history).returncode == 2
    assert checkout.calls() == ["doctor smoke", "doctor smoke"]


def test_what_cannot_be_compared_is_refused(checkout: Checkout) -> None:
    """A shallow clone, and a revision that the target has."""
    unrelated = checkout.git("commit-tree", "HEAD^{tree}", "-m", "no common commit")
    done = checkout.script("compare.sh", unrelated)
    assert (done.returncode, done.stderr.split(":")[0]) == (2, f"no common commit with {unrelated}")
    done = checkout.script("compare.sh", "HEAD")
    assert (done.returncode, done.stderr) == (
        2,
        "HEAD has this revision: there is nothing to compare\n",
    )
    assert checkout.script("baseline.sh", "chekc", "x").returncode == 2
    assert checkout.calls() == []


def stored(own: Line, number: int, machine: str, factor: float) -> Line:
    """An earlier run of another revision on a machine."""
    endpoints = {key: each * factor * (1 + 0.001 * number) for key, each in own.endpoints.items()}
    return msgspec.structs.replace(
        own,
        run=f"dev-50-20260920-{100000 + number}",
        revision=f"{number:040x}",
        dirty=False,
        machine=msgspec.structs.replace(own.machine, id=machine),
        endpoints=endpoints,
    )


@pytest.mark.parametrize(
    ("machine", "factor", "code", "shown"),
    [
        ("0123456789abcdef", 1.0, 0, "SAME OR BETTER"),
        ("0123456789abcdef", 0.5, 4, "REGRESSION"),
        ("another", 0.5, 7, "0 of 6 stored runs can be compared"),
    ],
)
def test_a_run_is_held_against_stored_runs_of_its_own_machine_only(
    checkout: Checkout, run: Run, machine: str, factor: float, code: int, shown: str
) -> None:
    results(checkout.folder / "build" / "run", run)
    history, own = checkout.folder / "build" / "history", line_of(run.summary, run.rows)
    for number in range(6):
        append(history, stored(own, number, machine, factor))
    done = checkout.script("baseline.sh", "check", str(history))
    assert done.returncode == code, done.stdout + done.stderr
    assert checkout.calls() == ["doctor smoke", "run smoke"]
    assert shown in checkout.summary.read_text()
    assert shown in done.stdout


def test_runs_are_recorded_even_if_they_missed_a_gate_and_not_if_invalid(
    checkout: Checkout, run: Run
) -> None:
    """What was measured belongs into the history, and the pipeline fails all the same."""
    results(checkout.folder / "build" / "run", run, judged(run))
    history = checkout.folder / "build" / "history"
    checkout.codes["run"] = 5
    assert checkout.script("baseline.sh", "record", str(history)).returncode == 5
    assert not history.exists()
    checkout.codes["run"] = 3
    assert checkout.script("baseline.sh", "record", str(history)).returncode == 3
    own = line_of(run.summary, run.rows)
    assert read_history(history, "dev-50").lines == (own,)
    assert path_of(history, own).read_bytes().count(b"\n") == 1
