"""Defects of the engine found by the explorer's random fleets."""

from __future__ import annotations

import math

import pytest

from bigfleet.engine.fit.normalise import normalise
from bigfleet.engine.snapshot import EngineConfig
from tests.engine.engine_rig import RACK, configured, demand_of, fleet_of, idle, need_of, same
from tests.engine.engine_story import Story


def test_headroom_is_not_acquired_again_because_another_need_is_short() -> None:
    """A pod of six CPU is unplaced, and the headroom for gangs, a machine still joining, is offered
    to it first; as it is too small, it stays headroom.
    """
    specs = [
        *(idle(f"m{n}", labels={RACK: "a"}) for n in range(5)),
        configured("large", "west", cpu=8, labels={RACK: "a"}, disruption_cost=math.nan),
    ]
    gangs = [("east", need_of(2, same(), unit=1, group=f"[{n}]")) for n in range(2)]
    needs = [*gangs, ("east", need_of(6, unit=6)), ("west", need_of(8, unit=8))]
    folded = normalise(fleet_of(specs), demand_of(fleet_of(specs), needs))
    names = [fleet_of(specs).clusters[number] for number in folded.cluster.tolist()]
    story = Story(specs, *zip(names, folded.needs, strict=True))
    assert story.cycle() == ["Bootstrap m0", "Bootstrap m1"]
    assert [story.cycle() for _ in range(3)] == [[]] * 3


@pytest.mark.parametrize(("cost", "taken"), [(0.0, ["Reclaim x"]), (math.inf, [])])
def test_a_machine_that_its_operator_keeps_is_not_surplus(cost: float, taken: list[str]) -> None:
    """Pods run there although none are placed, maybe of a higher priority."""
    specs = [configured("x", last_priority=10, disruption_cost=cost)]
    story = Story(specs, ("west", need_of(4, priority=50)), settings=EngineConfig())
    assert story.cycle() == taken
