"""An expectation must hold while nothing happens; what was ordered for a moment may come late."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from bigfleet.simulation.runtime.loop import run
from tests.scenarios.kubectl import Kubectl
from tests.scenarios.playing import play
from tests.scenarios.records import Scenario
from tests.scenarios.story_rig import Story
from tests.scenarios.systems.static_nodes import StaticNodes
from tests.scenarios.systems.system import WHOLE

QUIET_SECONDS = 0.5


class Strict(StaticNodes):
    """Held to everything."""

    judged = WHOLE


def played(story: Story, **expect: Any) -> list[str]:
    """What does not hold of one expectation; a second Node comes at 0.3 s, and goes at 1.2 s, both
    of virtual time.
    """
    return run(lambda: _play(story, expect))


async def _play(story: Story, expect: dict[str, Any]) -> list[str]:
    steps = [{"expect": {**expect, "quiet": QUIET_SECONDS}}]
    scenario = msgspec.convert({"rule": "One Node suffices for nobody.", "steps": steps}, Scenario)
    nobody = cast("Any", None)  # asked of nothing that is expected here
    clock = asyncio.get_running_loop().time
    playing = asyncio.create_task(play(scenario, Strict(), Kubectl(nobody, nobody, story.seen)))
    changes = [(0.3, "extra", False), (1.2, "extra", True)]
    while not playing.done():
        story.now = clock()
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


def test_a_node_that_comes_while_nothing_should_happen_is_told(story: Story) -> None:
    assert "extra came" in "".join(played(story, machines=[{"exactly": 1}]))


def test_what_may_come_late_may_go_late_though_it_is_quiet_in_between(story: Story) -> None:
    """Between coming and going the Node stays for longer than the quiet."""
    assert played(story, machines=[{"exactly": 1}], settle=3) == []


def test_what_still_has_to_go_when_it_is_late_is_told(story: Story) -> None:
    assert "2 Nodes" in "".join(played(story, machines=[{"exactly": 1}], settle=0.4))
