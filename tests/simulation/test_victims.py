"""Which machines are drained for a need in vain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decision import Action, ActionType, Shortfall
from bigfleet.engine.snapshot import NONE
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need, NeedKey
from bigfleet.services.shard.decide.compute import CycleResult
from bigfleet.services.shard.decide.cycle_inputs import CycleInputs
from bigfleet.services.shard.records.wants import Wants
from bigfleet.simulation.invariants.victims import Victims
from tests.engine.engine_rig import (
    EVENLY_BY_ZONE,
    ZONE,
    checked,
    configured,
    demand_of,
    fleet_of,
    need_of,
)

SPREAD, PLAIN = need_of(4, unit=1, spread=EVENLY_BY_ZONE), need_of(4, unit=1)
ZONES = {"a0": "a", "a1": "a", "c0": "c"}


class Watched:
    """Three machines of others, and the rule's view of what is drained for one need of east."""

    def __init__(self, need: Need) -> None:
        self._victims, self._need, self._draining = Victims(), need, set[str]()

    def takes(self, *names: str, counts: Sequence[str] = ()) -> list[str]:
        """What the rule says when it takes these, short of pods, and counts those of them."""
        specs = [
            configured(
                name,
                "west",
                labels={ZONE: zone},
                state=MachineState.DRAINING if name in self._draining else MachineState.CONFIGURED,
            )
            for name, zone in ZONES.items()
        ]
        fleet, rows = fleet_of(specs), [*ZONES]
        demand = demand_of(fleet, [("east", self._need)])
        actions = [Action(ActionType.PREEMPT, rows.index(name), 0, 600) for name in names]
        claims = [0 if name in (*counts, *names) else NONE for name in rows]
        decision = replace(
            checked(fleet, demand),
            actions=actions,
            shortfalls=[Shortfall(0, self._need.sizes, (), 1, 0.0)],
            claimed_by=np.array(claims, np.int32),
        )
        wants = Wants(np.full(len(rows), NONE, np.int32), [])
        ids = [name.encode() for name in rows]
        inputs = CycleInputs(fleet, ids, wants, demand, 0.0, CycleMemory())
        keys = [NeedKey("east", *self._need.key)]
        self._draining.update(names)
        result = CycleResult(inputs, fleet, demand, keys, decision, (), None)
        return [sentence.partition(" for ")[0] for sentence in self._victims.check(result)]


@pytest.mark.parametrize("need", [PLAIN, SPREAD])
def test_a_need_that_takes_another_machine_must_count_what_drains_for_it(need: Need) -> None:
    watched = Watched(need)
    assert watched.takes("a0") == []
    assert watched.takes("a1") == ["a0 is being drained"]
    counting = Watched(need)
    counting.takes("a0")
    assert counting.takes("a1", counts=["a0"]) == []


def test_pods_that_spread_may_take_one_in_another_zone_first() -> None:
    """That zone lost a machine, so for now one less is allowed in the other ones. Once it has
    another, what drains must be counted again.
    """
    watched = Watched(SPREAD)
    assert watched.takes("a0") == []
    assert watched.takes("c0") == []
    assert watched.takes("a1", counts=["c0"]) == ["a0 is being drained"]


def test_pods_that_do_not_spread_may_not() -> None:
    watched = Watched(PLAIN)
    watched.takes("a0")
    assert watched.takes("c0") == ["a0 is being drained"]
