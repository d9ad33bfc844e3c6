"""Words that the project has given up do not come back; each failure names the word to use.

One idea has one word: that of Kubernetes, gRPC, Raft, queueing or statistics where they have one.
ARCHITECTURE.md has the glossary.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Nowhere, in whatever form, also not as a part of an identifier: retired word -> replacement.
RETIRED = {
    "contented": "satisfied",
    "estate": "ownership",
    "gentle": "non-disruptive",
    "goods": "candidates",
    "guests": "out-of-domain machines",
    "heir": "transfer target",
    "homeless": "unschedulable",
    "keeper": "supervisor (EtcdSupervisor)",
    "likeness": "equivalence class",
    "rails": "limits (CycleLimits)",
    "reign": "leader term (LeaderTerm)",
    "reluctance": "tier",
    "ripe": "reclaimable",
    "robbed": "preempted",
    "shelter": "scale-down guard",
    "shelves": "free pools (FreePools)",
    "shopping": "acquisition; acquisition request",
    "sighting": "observation",
    "stirred": "dirty; disturbed",
    "stranded": "additional",
    "steward": "instruction handler (InstructionHandler)",
    "succession": "failover cause",
    "takeable": "preemption candidate",
    "territory": "ownership",
    "tether": "watchdog",
    "unended": "censored",
    "vitals": "health monitor",
    "warden": "reaper",
    "wish": "resolved need; replica bounds",
}
# Ordinary words that no longer name anything: retired identifier -> replacement.
RETIRED_NAMES = {
    "Carry": "CycleMemory",
    "Course": "RunProgress; LoadSchedule",
    "Deaf": "NullListener",
    "Desk": "CycleState; a handler",
    "Doubt": "PendingWrite; InvalidReason",
    "Goods": "Candidates",
    "Ground": "RunContext",
    "Hands": "MemberWriter",
    "Heart": "LoopLagMonitor",
    "Holdings": "Ownership",
    "Ledger": "RequestCache",
    "Machinery": "OperationExecutor",
    "Part": "Arm",
    "Passage": "PhaseEffects",
    "Reception": "SessionRouter",
    "Room": "FreeCapacity",
    "Scene": "ReconcileContext",
    "Seat": "MemberSnapshot",
    "Standing": "LeadershipStatus",
    "Thought": "CycleResult",
    "ended_share": "kaplan_meier_cdf",
    "think": "compute",
}
# History keeps its words; generated and golden files follow what they are made from.
EXCLUDED = ("docs/results/", "CHANGELOG.md", "requirements.lock", "controlplane/modules/")
# Words of lower-case, capitalised or CamelCase identifiers and of prose.
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@cache
def files() -> tuple[str, ...]:
    listing = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return tuple(
        name
        for name in listing.stdout.split()
        if not name.startswith(EXCLUDED)
        and "golden" not in name
        and "_pb2" not in name
        and ROOT / name != Path(__file__)
        and (ROOT / name).is_file()  # a link to a folder is no text
    )


@cache
def occurrences() -> dict[str, list[str]]:
    """Retired word -> the places that have it, file names included."""
    found: dict[str, list[str]] = {}
    for name in files():
        text = f"{name}\n{(ROOT / name).read_text(errors='replace')}"
        lower = text.lower()
        if any(word in lower for word in RETIRED):  # cheap; whole words are looked for below
            for number, line in enumerate(text.splitlines()):
                words = {word.lower() for word in WORD.findall(line)}
                for word in RETIRED.keys() & (words | {w.removesuffix("s") for w in words}):
                    found.setdefault(word, []).append(f"{name}:{number}")
    return found


def defined_in(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Each name that a module defines or assigns, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno


@cache
def definitions() -> dict[str, list[str]]:
    """Retired identifier -> the places that define it."""
    found: dict[str, list[str]] = {}
    # A module is searched for definitions only where one of the names stands at all.
    suspects = re.compile(rf"\b_?(?:{'|'.join(RETIRED_NAMES)})\b")
    for file in (name for name in files() if name.endswith(".py")):
        text = (ROOT / file).read_text()
        if suspects.search(text):
            for name, line in defined_in(ast.parse(text)):
                found.setdefault(name.lstrip("_"), []).append(f"{file}:{line}")
    return found


@pytest.mark.parametrize("word", RETIRED)
def test_a_retired_word_does_not_come_back(word: str) -> None:
    """Use the field's word instead."""
    places = occurrences().get(word, [])
    assert not places, f"say {RETIRED[word]!r} instead of {word!r}: {places[:10]}"


@pytest.mark.parametrize("name", RETIRED_NAMES)
def test_a_retired_name_does_not_come_back(name: str) -> None:
    """Use the name of today instead."""
    places = definitions().get(name, [])
    assert not places, f"call it {RETIRED_NAMES[name]} instead of {name}: {places[:10]}"
