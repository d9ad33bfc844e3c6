"""docs/scenarios.md tells what there is, and what a system is not held to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.scenarios import timing
from tests.scenarios.files import load_all
from tests.scenarios.systems import bigfleet
from tests.scenarios.systems.choice import SYSTEMS
from tests.scenarios.systems.system import WHOLE
from tests.scenarios.table import tables

PAGE = Path(__file__).parents[2] / "docs" / "scenarios.md"
REWRITE = "REWRITE_GOLDEN"
MARKER = (
    "<!-- What follows is generated: "
    "REWRITE_GOLDEN=1 .venv/bin/pytest tests/scenarios/test_scenario_docs.py -->"
)
MOST_LEFT_OUT = 5
AUTOSCALERS = [system for make in SYSTEMS.values() if (system := make()).judged == WHOLE]


def test_the_page_is_current() -> None:
    """REWRITE_GOLDEN=1 writes it anew."""
    text = tables(load_all(), AUTOSCALERS)
    prose, marker, generated = PAGE.read_text().partition(MARKER)
    assert marker, f"{PAGE.name} has lost its line {MARKER!r}"
    if os.environ.get(REWRITE):
        PAGE.write_text(f"{prose}{marker}\n\n{text}")
        return
    assert generated == f"\n\n{text}", f"{PAGE.name} is not current; {REWRITE}=1 writes it anew"


@pytest.mark.parametrize("system", AUTOSCALERS, ids=lambda system: system.name)
def test_few_scenarios_are_left_out_and_each_for_a_reason(system: bigfleet.BigFleet) -> None:
    """At most five; those that do not exist cannot be left out."""
    assert len(system.left_out) <= MOST_LEFT_OUT
    assert set(system.left_out) <= {case.name for case in load_all()}
    assert all(len(why) > 20 for why in system.left_out.values())


def test_bigfleet_acts_within_the_time_for_which_nothing_must_happen() -> None:
    """Its roll-up, two of its cycles and its hold together are shorter than the least quiet."""
    waits = bigfleet.ROLLUP_SECONDS + 2 * bigfleet.CYCLE_SECONDS + bigfleet.RECLAIM_HOLD_SECONDS
    assert waits < timing.REACTION_SECONDS
    settings = bigfleet.settings().bigfleet
    assert settings.reclaim_hold_seconds == bigfleet.RECLAIM_HOLD_SECONDS
