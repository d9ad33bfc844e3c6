"""Every scenario with its rule, and which systems are held to it, for the docs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.scenarios.files import Case
from tests.scenarios.systems.system import System

_FOLDER = "../tests/scenarios/cases"
_FIRST = "field-reports"


def tables(cases: Sequence[Case], systems: Sequence[System]) -> str:
    """The generated part of the page."""
    groups = dict.fromkeys(case.group for case in cases)
    lines: list[str] = []
    for group in sorted(groups, key=lambda name: (name != _FIRST, name)):
        lines += _section(group, [case for case in cases if case.group == group], systems)
    return "\n".join([*lines, *_left_out(systems)]) + "\n"


def _section(group: str, cases: Sequence[Case], systems: Sequence[System]) -> Iterator[str]:
    names = [system.name for system in systems]
    yield f"## {group.replace('-', ' ').capitalize()}\n"
    yield f"| Scenario | Rule | {' | '.join(names)} |"
    yield f"|---|---|{'---|' * len(names)}"
    for case in cases:
        link = f"[{case.name}]({_FOLDER}/{case.group}/{case.name}.yaml)"
        held = ["left out" if case.name in system.left_out else "held" for system in systems]
        yield f"| {link} | {case.scenario.rule.strip()} | {' | '.join(held)} |"
    yield ""


def _left_out(systems: Sequence[System]) -> Iterator[str]:
    yield "## Left out\n"
    reasons = [
        f"- {system.name}, {name}: {why}"
        for system in systems
        for name, why in sorted(system.left_out.items())
    ]
    yield "\n".join(reasons) or "None: every system is held to every scenario."
