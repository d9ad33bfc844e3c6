"""Runs the simulation and the engine's benchmark of two checkouts, in their own environments."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from loaddriver.compare.comparison import Fact
from loaddriver.compare.facts import EngineRow, engine_facts, story_fact
from loaddriver.run.provenance import ROOT
from loaddriver.run.system import SystemUnderTest

SEEDS = range(1, 7)
_ROUNDS = 3
_ROWS = (("small", 60), ("50K machines", 20))
_TIMEOUT_SECONDS = 600


def gather(base: str, head: str, say: Callable[[str], None]) -> list[Fact]:
    """The facts about two checkouts, "" for the harness's own; takes a minute or two."""
    if base == head:
        return []  # one program, which has nothing to differ in
    say(f"facts first: {len(SEEDS)} seeds on the virtual clock, and the engine's CPU")
    stories = [{seed: _story(side, seed) for seed in SEEDS} for side in (base, head)]
    found = [story_fact(*stories)]
    rounds: dict[str, list[Sequence[EngineRow]]] = {base: [], head: []}
    for number in range(_ROUNDS):  # in alternating order, so that a drift meets both
        for side in (base, head) if number % 2 == 0 else (head, base):
            rounds[side].append(_engine(side))
    found += engine_facts(rounds[base], rounds[head])
    for fact in found:
        say("\n  ".join([f"{fact.name}: {fact.sentence}", *fact.lines]))
    return found


def _story(side: str, seed: int) -> str | None:
    """What a seed's world does; None if it cannot be replayed there."""
    done = _python(side, "bigfleet.simulation", "replay", str(seed))
    return done.stdout if done is not None and done.returncode in (0, 1) and done.stdout else None


def _engine(side: str) -> list[EngineRow]:
    """One round of the benchmark; empty if it cannot be run there."""
    rows: list[EngineRow] = []
    for name, cycles in _ROWS:
        with tempfile.TemporaryDirectory() as folder:
            arguments = ("--rows", name, "--cycles", str(cycles), "--results", folder)
            done = _python(side, "bigfleet.bench", *arguments)
            latest = Path(folder) / "latest.json"
            if done is None or not latest.exists():
                return []
            try:
                rows += msgspec.json.decode(latest.read_bytes(), type=list[EngineRow])
            except msgspec.MsgspecError:
                return []
    return rows


def _python(side: str, module: str, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    python = SystemUnderTest(Path(side)).python if side else (sys.executable,)
    try:
        return subprocess.run(
            [*python, "-m", module, *arguments],
            cwd=side or ROOT,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
