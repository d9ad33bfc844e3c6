"""The suite as a fixture: lanes play scenarios while tests wait for their outcomes."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from controlplane.request import Binaries
from loaddriver.substrates.runscope import RunScope
from tests.scenarios.files import Case
from tests.scenarios.lane import LaneContext, Outcome
from tests.scenarios.suite import Suite
from tests.scenarios.systems.choice import system_of
from tests.support.loop_thread import LoopThread

_SYSTEM, _LANES = "SCENARIO_SYSTEM", "SCENARIO_LANES"
_SUITE = "scenarios/test_scenarios.py::"
# As many as two cores can bear; most of a scenario is waiting.
_USUAL_LANES = 5
# To start a lane's control plane costs as much as some scenarios.
_LEAST_OF_A_LANE = 4


@pytest.fixture(scope="session")
def play(
    request: pytest.FixtureRequest, binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Case], Outcome]]:
    """Gives a case's outcome; all cases of this session are being played, in their order."""
    cases: list[Case] = [
        cast("Case", item.callspec.params["case"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and "play" in item.fixturenames
        and not item.get_closest_marker("skip")
    ]
    logs = tmp_path_factory.mktemp("scenario-logs")
    scope = RunScope.open(f"scenarios-{os.getpid()}", "scenarios", logs, logs / "lock")
    environment = dict(os.environ)
    system = system_of(environment.get(_SYSTEM, ""))
    context = LaneContext(scope.run_id, scope.data_directory, logs, binaries, environment, system)
    loop = LoopThread()

    async def suite() -> Suite:
        usual = min(_USUAL_LANES, math.ceil(len(cases) / _LEAST_OF_A_LANE))
        return Suite(context, cases, int(environment.get(_LANES) or usual))

    playing = loop.run(suite())
    run = loop.begin(playing.run())
    try:
        yield lambda case: loop.run(playing.outcome(case.name))
    finally:
        run.cancel()
        loop.run(playing.ended())
        loop.close()
        asyncio.run(scope.close())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line what was found, and which scenarios do not hold."""
    mine = {
        outcome: [r.nodeid for r in terminalreporter.stats.get(outcome, []) if _SUITE in r.nodeid]
        for outcome in ("passed", "failed", "skipped")
    }
    played = len(mine["passed"]) + len(mine["failed"])
    if played:
        system = system_of(os.environ.get(_SYSTEM, ""))().name
        terminalreporter.write_line(
            f"scenarios: {len(mine['passed'])} of {played} hold for {system}"
            + _names(", not: ", mine["failed"])
            + _names("; left out: ", mine["skipped"])
        )


def _names(what: str, tests: list[str]) -> str:
    return what * bool(tests) + ", ".join(test.split("[")[-1].rstrip("]") for test in tests)
