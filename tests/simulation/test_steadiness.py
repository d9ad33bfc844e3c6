"""Which releases of machines that were acquired shortly before have no reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decision import Action, ActionType
from bigfleet.engine.snapshot import NONE
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need, NeedKey
from bigfleet.services.shard.decide.compute import CycleResult
from bigfleet.services.shard.decide.cycle_inputs import CycleInputs
from bigfleet.services.shard.records.wants import Wants
from bigfleet.simulation.cluster.cluster import SimulatedCluster
from bigfleet.simulation.invariants.steadiness import Steadiness
from tests.engine.engine_rig import (
    Spec,
    checked,
    configured,
    demand_of,
    fleet_of,
    idle,
    need_of,
    speculative,
)
from tests.simulation.simulation_rig import machines

WEB, ASKING = need_of(3, unit=1), need_of(2, unit=1, group="additional")
NEEDLESS = ["m-000 was acquired for east and is released without a reason"]
# A machine that `WEB` can use, and one that it cannot.
USEFUL, SMALL = idle("x"), idle("x", cpu=0, more={"memory": 1})

Order = tuple[ActionType, str, int]


class Watched:
    """Cluster east, in which m-000 is a Node, and the rule's view of its shard's decisions."""

    def __init__(self) -> None:
        self.east = SimulatedCluster("east", lambda: 0.0)
        self.east.join(machines(1)[0])
        self._steadiness = Steadiness({"east": self.east, "west": self.east}, grows=True)
        self._now = 1000.0

    def decided(self, specs: Sequence[Spec], needs: Sequence[Need], *orders: Order) -> list[str]:
        """What the rule says of a decision of these orders: type, machine and need."""
        self._now += 10.0
        names, fleet = [spec.name for spec in specs], fleet_of(specs)
        demand = demand_of(fleet, [("east", need) for need in needs])
        actions = [Action(what, names.index(name), need) for what, name, need in orders]
        raw, wants = [name.encode() for name in names], Wants(np.empty(0, np.int32), [])
        inputs = CycleInputs(fleet, raw, wants, demand, self._now, CycleMemory())
        keys = [NeedKey("east", *need.key) for need in needs]
        decision = replace(checked(fleet, demand), actions=actions)
        result = CycleResult(inputs, fleet, demand, keys, decision, (), None)
        return [*self._steadiness.check(result)]

    def acquired(self, need: Need = WEB, *more: Order) -> None:
        """m-000 is acquired for `need`, in a decision with `more` orders."""
        specs = [idle("m-000"), configured("y", "west")]
        order = (ActionType.BOOTSTRAP, "m-000", 0)
        assert self.decided(specs, [need, WEB], order, *more) == []

    def released(self, *needs: Need, follows: bool = True) -> list[str]:
        """What is said once m-000 is reclaimed, and its operator drains it or refuses to."""
        specs, order = [configured("m-000")], (ActionType.RECLAIM, "m-000", NONE)
        said = self.decided(specs, needs or [WEB], order)
        self.east.nodes["m-000"].leaving = follows
        return [*said, *self.decided(specs, needs or [WEB])]


def test_a_machine_that_is_released_as_nothing_has_changed_is_reported() -> None:
    """It was acquired for nothing."""
    watched = Watched()
    watched.acquired()
    assert watched.released() == NEEDLESS


def test_one_that_never_joined_is_reported_when_it_is_deleted() -> None:
    """No operator is asked about it."""
    watched = Watched()
    assert watched.decided([speculative("m-000")], [WEB], (ActionType.PROVISION, "m-000", 0)) == []
    idle_again = [speculative("m-000", state=MachineState.IDLE, idle_since=0.0)]
    assert watched.decided(idle_again, [WEB], (ActionType.DELETE, "m-000", NONE)) == NEEDLESS


def test_a_release_that_the_operator_refuses_is_none() -> None:
    """Pods have been bound to the machine since the shard asked."""
    watched = Watched()
    watched.acquired()
    assert watched.released(follows=False) == []


@pytest.mark.parametrize(("changes", "said"), [(True, []), (False, NEEDLESS)])
def test_a_change_of_demand_explains_a_release(changes: bool, said: list[str]) -> None:
    """The pods for which it was acquired may be gone."""
    watched = Watched()
    watched.acquired()
    if changes:
        watched.east.shrank_seconds = 1_015.0
    assert watched.released() == said


@pytest.mark.parametrize(("machine", "said"), [(USEFUL, []), (SMALL, NEEDLESS)])
def test_a_machine_that_pods_request_for_themselves_explains_it_if_it_would_do(
    machine: Spec, said: list[str]
) -> None:
    """That pods cannot use what they are counted on is known only once they have waited."""
    watched = Watched()
    watched.acquired()
    order = (ActionType.BOOTSTRAP, "x", 1)
    assert watched.decided([machine], [WEB, ASKING], order) == []
    assert watched.released() == said


@pytest.mark.parametrize(
    ("state", "said"), [(MachineState.CONFIGURED, []), (MachineState.DRAINING, NEEDLESS)]
)
def test_a_drain_that_an_operator_refuses_meanwhile_explains_it(
    state: MachineState, said: list[str]
) -> None:
    """The machine that was acquired in place of the other is one more then."""
    watched, there = Watched(), configured("x")
    assert watched.decided([there], [WEB], (ActionType.RECLAIM, "x", NONE)) == []
    watched.acquired()
    assert watched.decided([replace(there, state=state)], [WEB]) == []
    assert watched.released() == said


def test_a_machine_that_pods_requested_for_themselves_before_does_not_explain_it() -> None:
    """It was known when the other one was acquired."""
    watched = Watched()
    assert watched.decided([USEFUL], [WEB, ASKING], (ActionType.BOOTSTRAP, "x", 1)) == []
    watched.acquired()
    assert watched.released() == NEEDLESS


@pytest.mark.parametrize(
    ("left", "said"), [([need_of(1, unit=1, group="additional")], []), ([ASKING], NEEDLESS)]
)
def test_pods_that_are_bound_elsewhere_need_no_machine_that_they_requested(
    left: list[Need], said: list[str]
) -> None:
    """Nothing is known of the Nodes on which they find room."""
    watched = Watched()
    watched.acquired(ASKING)
    assert watched.released(*left) == said


@pytest.mark.parametrize(
    "order", [(ActionType.RECLAIM, "y", 0), (ActionType.PREEMPT, "y", 0)], ids=["surplus", "in use"]
)
def test_what_a_decision_also_takes_from_others_may_leave_room(order: Order) -> None:
    """Machines are taken from others once nothing else is left, and may be larger."""
    watched = Watched()
    watched.acquired(WEB, order)
    assert watched.released() == []
