"""A need on which deciding fails is left out, and no other need is affected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.engine.decide import decide
from bigfleet.engine.decision import Decision
from bigfleet.engine.snapshot import Demand, Fleet
from bigfleet.model.group import PodGroup, group_text
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need
from bigfleet.services.shard.decide.quarantine import decide_without_failing_needs, without
from tests.support.shard_rig import cycles, machine, need, shard

_S = MachineState


def failing_at(*groups: str) -> Callable[..., Decision]:
    """A decision with a defect: it fails wherever a need of one of these groups is asked for."""

    def decided(fleet: Fleet, demand: Demand, *rest: Any) -> Decision:
        for each in demand.needs:
            assert group_text(each.group) not in groups, f"a defect at {group_text(each.group)}"
        return decide(fleet, demand, *rest)

    return decided


async def test_other_clusters_are_served_as_if_it_were_not_there(tmp_path: Path) -> None:
    """Its cluster gets a status for it, and keeps its machines."""
    provider = MemoryProvider(
        [machine("m-1"), machine("m-2", _S.CONFIGURED, "bad")], auto_finish=True
    )
    async with shard(provider, tmp_path) as rig:
        rig.shard.cycle.decide = failing_at("cursed")
        bad, good = await rig.operator("bad"), await rig.operator("good")
        await bad.roll_up(need(priority=100, group="cursed"))
        await good.roll_up(need())
        await good.receives_state("m-1", _S.CONFIGURED)
        received = await bad.receives(lambda m: bool(m.demand_status.short))
        await cycles(rig, 5)
        assert rig.shard.inventory.state("m-2") is _S.CONFIGURED
        assert rig.shard.cycle.not_ready() == ""
    [short] = received.demand_status.short
    assert short.reason == "CannotBeDecided"
    assert "a defect at cursed" in short.message


async def test_it_is_retried_when_its_cluster_changes_it(tmp_path: Path) -> None:
    """What was left out comes back with the cluster's next roll-up that changes it."""
    provider = MemoryProvider([machine("m-1")], auto_finish=True)
    async with shard(provider, tmp_path) as rig:
        rig.shard.cycle.decide = failing_at("cursed")
        operator = await rig.operator()
        await operator.roll_up(need(group="cursed"))
        await operator.receives(lambda m: bool(m.demand_status.short))
        rig.shard.cycle.decide = decide
        await cycles(rig, 3)
        assert rig.shard.inventory.state("m-1") is _S.IDLE, "equal needs are not tried again"
        await operator.roll_up(need(machines=0.5, group="cursed"))
        await operator.receives_state("m-1", _S.CONFIGURED)


def demand_of(*needs: tuple[str, int]) -> Demand:
    """A plain need for each (group, cluster)."""
    asked = tuple(need(group=group) for group, _ in needs)
    clusters = np.array([cluster for _, cluster in needs], np.int32)
    return Demand(asked, clusters, frozenset(clusters.tolist()))


@pytest.mark.parametrize("bad", [(0,), (7,), (0, 7), (2, 3, 4), (1, 6)])
def test_just_those_are_left_out_that_fail(bad: tuple[int, ...]) -> None:
    """Wherever they stand, and however many there are."""
    demand = demand_of(*((f"g{number}", number) for number in range(8)))

    def fail(asked: Demand) -> list[Need]:
        assert not any(
            each.group in {PodGroup(f"g{number}") for number in bad} for each in asked.needs
        )
        return list(asked.needs)

    names = [f"c{number}" for number in range(8)]
    outcome = decide_without_failing_needs(names, demand, {}, fail)
    assert {key.group for key in outcome.quarantine} == {f"g{number}" for number in bad}
    assert len(outcome.decided) == 8 - len(bad)


def test_of_a_cluster_with_many_of_them_all_needs_are_left_out() -> None:
    """Each is looked for with many decisions, and one cluster must not cost hundreds of them."""
    demand = demand_of(*((f"g{number}", number % 2) for number in range(40)))
    tried = 0

    def fail(asked: Demand) -> list[Need]:
        nonlocal tried
        tried += 1
        assert 0 not in asked.cluster
        return list(asked.needs)

    outcome = decide_without_failing_needs(["bad", "good"], demand, {}, fail)
    assert len(outcome.decided) == 20
    assert {key.cluster for key in outcome.quarantine} == {"bad"}
    assert tried < 50


def test_a_failure_without_any_need_is_not_blamed_on_one() -> None:
    """Then the cycle fails, as it must."""

    def fail(_: Demand) -> None:
        message = "the fleet itself"
        raise ValueError(message)

    with pytest.raises(ValueError, match="the fleet itself"):
        decide_without_failing_needs(["c"], demand_of(("g", 0)), {}, fail)


def test_without_some_needs_a_cluster_keeps_what_it_has() -> None:
    """It counts as one that has not reported: nothing may be taken from it."""
    demand = demand_of(("g", 0), ("h", 1), ("i", 1))
    left = without(demand, [2])
    assert [each.group for each in left.needs] == [PodGroup("g"), PodGroup("h")]
    assert left.reported == {0}
