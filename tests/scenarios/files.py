"""Reads scenarios, strictly: every mistake of a file, with its place and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loaddriver.errors import ProfileError
from loaddriver.profile.decoding import FieldError, decode
from loaddriver.profile.hints import did_you_mean
from loaddriver.profile.yaml_reader import read_yaml
from tests.scenarios.checks import problems_of
from tests.scenarios.records import Scenario

CASES = Path(__file__).with_name("cases")


class ScenarioError(Exception):
    """Files that are no scenarios; `problems` holds one line for each mistake."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True)
class Case:
    """A scenario with the names of its file and of the folder that it lies in."""

    name: str
    group: str
    scenario: Scenario


def load_all(folder: Path = CASES) -> list[Case]:
    """All scenarios, by folder and name. ScenarioError with the mistakes of all files."""
    cases: list[Case] = []
    mistakes: list[str] = []
    for path in sorted(folder.glob("*/*.yaml")):
        try:
            cases.append(load(path))
        except ScenarioError as error:
            mistakes += error.problems
    mistakes += _repeated(cases)
    if mistakes:
        raise ScenarioError(mistakes)
    return cases


def load(path: Path) -> Case:
    """The scenario in one file. ScenarioError with all its mistakes."""
    where = f"{path.parent.name}/{path.name}"
    try:
        raw = read_yaml(path, where)
    except ProfileError as error:
        raise ScenarioError(error.problems) from None
    scenario, problems = decode(raw, Scenario)
    if scenario is not None:
        problems = list(problems_of(scenario))
    if scenario is None or problems:
        raise ScenarioError([_line(where, problem) for problem in problems])
    return Case(path.stem, path.parent.name, scenario)


def chosen(cases: Sequence[Case], only: str) -> list[Case]:
    """Those that `only` names, with commas between; all where it is empty. ScenarioError for a name
    that no scenario has.
    """
    names = [name.strip() for name in only.split(",") if name.strip()]
    known = [case.name for case in cases]
    if unknown := [name for name in names if name not in known]:
        raise ScenarioError(
            [
                f"ONLY={name}: no scenario is called so{did_you_mean(name, known)}"
                for name in unknown
            ]
        )
    return [case for case in cases if not names or case.name in names]


def _repeated(cases: Sequence[Case]) -> Iterator[str]:
    names = [case.name for case in cases]
    for name in sorted({name for name in names if names.count(name) > 1}):
        folders = ", ".join(case.group for case in cases if case.name == name)
        yield f"{name}.yaml is in {folders}; a scenario is known by its name: rename all but one"


def _line(where: str, problem: FieldError) -> str:
    return f"{where}: {problem.path} {problem.text}".replace(":  ", ": ")
