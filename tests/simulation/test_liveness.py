"""Which free machines the explorer expects to be used for pods that wait."""

from __future__ import annotations

import asyncio

import pytest

from bigfleet.model.need import Spread
from bigfleet.simulation import liveness
from bigfleet.simulation.convergence import unserved_workloads
from bigfleet.simulation.explorer import explore
from bigfleet.simulation.trials import lasting
from bigfleet.simulation.world import World
from tests.simulation.simulation_rig import (
    TYPE,
    ZONE,
    bound,
    machines,
    pods,
    run_scenario,
    world_spec,
)


def test_a_zone_whose_nodes_the_pods_do_not_select_is_new_to_them() -> None:
    """Its only machine for them holds one pod, which would limit the other zones to two each."""
    fleet = [
        *machines(1, "a", zone="a"),
        *machines(1, "c", zone="c"),
        *machines(1, "large", zone="b", instance_type="large"),
        *machines(1, "small", zone="b", amounts={"cpu": "1"}),
    ]

    async def scenario(world: World) -> None:
        other = pods("other", 1, selector={TYPE: ("large",)})
        spreads = pods("web", 9, selector={TYPE: ("small",)}, spread=(Spread(ZONE, 1, True),))
        world.clusters["east"].apply(other)
        world.clusters["east"].apply(spreads)
        await asyncio.sleep(120)
        assert bound(world) == 1 + 8
        assert list(unserved_workloads(world, world.clusters["east"])) == []

    run_scenario(world_spec(fleet), scenario)


def test_a_rule_that_cannot_be_checked_fails_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(lasting, "WATCHED_SECONDS", 60.0)
    monkeypatch.setattr(liveness, "unserved_workloads", broken)
    assert any("planted" in problem for problem in explore(1, "lasting").problems)
