"""An expectation must hold while nothing happens; what was ordered for a moment may come late."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import msgspec
import pytest

from tests.scenarios.kubectl import Kubectl
from tests.scenarios.playing import play
from tests.scenarios.records import Scenario
from tests.scenarios.systems.static_nodes import StaticNodes
from tests.scenarios.systems.system import WHOLE
from tests.scenarios.test_scenario_judging import Story

QUIET_SECONDS = 0.5


class Strict(StaticNodes):
    """Held to everything."""

    judged = WHOLE


async def played(story: Story, **expect: Any) -> list[str]:
    """What does not hold of one expectation; a second Node comes at 0.3 s, and goes at 1.2 s."""
    steps = [{"expect": {**expect, "quiet": QUIET_SECONDS}}]
    scenario = msgspec.convert({"rule": "One Node suffices for nobody.", "steps": steps}, Scenario)
    nobody = cast("Any", None)  # asked of nothing that is expected here
    began = time.monotonic()
    playing = asyncio.create_task(play(scenario, Strict(), Kubectl(nobody, nobody, story.seen)))
    changes = [(0.3, "extra", False), (1.2, "extra", True)]
    while not playing.done():
        story.now = time.monotonic() - began
        while changes and changes[0][0] <= story.now:
            _, name, gone = changes.pop(0)
            story.node(name, gone)
        await asyncio.sleep(0.02)
    return await playing


@pytest.fixture
def story() -> Story:
    """One Node."""
    story = Story()
    story.node("n1")
    return story


async def test_a_node_that_comes_while_nothing_should_happen_is_told(story: Story) -> None:
    assert "extra came" in "".join(await played(story, machines=[{"exactly": 1}]))


async def test_what_may_come_late_may_go_late_though_it_is_quiet_in_between(story: Story) -> None:
    """Between coming and going the Node stays for longer than the quiet."""
    assert await played(story, machines=[{"exactly": 1}], settle=3) == []


async def test_what_still_has_to_go_when_it_is_late_is_told(story: Story) -> None:
    assert "2 Nodes" in "".join(await played(story, machines=[{"exactly": 1}], settle=0.4))
