"""Every scenario, held against a live autoscaler on a real control plane (`make scenarios`)."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.scenarios.files import Case, chosen, load_all
from tests.scenarios.lane import Outcome
from tests.scenarios.systems.choice import system_of

ALL = load_all()
CHOSEN = chosen(ALL, os.environ.get("SCENARIO_ONLY", ""))
LEFT_OUT = system_of(os.environ.get("SCENARIO_SYSTEM", ""))().left_out

# The last one waits for all others.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]


def _param(case: Case) -> object:
    every_time = case.scenario.smoke
    marks = [] if every_time else [pytest.mark.scenarios]
    if case.name in LEFT_OUT:
        marks.append(pytest.mark.skip(reason=LEFT_OUT[case.name]))
    return pytest.param(case, id=case.name, marks=marks)


@pytest.mark.parametrize("case", [_param(case) for case in CHOSEN])
def test_the_rule_of_the_scenario_holds(
    case: Case, play: Callable[[Case], Outcome], record_property: Callable[[str, object], None]
) -> None:
    """The sentence in the scenario's file. How long it took by itself is in a JUnit report."""
    outcome = play(case)
    record_property("seconds", round(outcome.seconds, 1))
    if outcome.story:
        pytest.fail(outcome.story, pytrace=False)
