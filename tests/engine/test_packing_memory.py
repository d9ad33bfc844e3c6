"""What a cluster's key depends on: everything that placing its pods depends on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.kernels.scoring import PlacementLog
from bigfleet.engine.snapshot import NONE, Demand, Fleet
from bigfleet.engine.state.cycle_state import CycleState
from bigfleet.engine.state.packing_order import PackingOrder
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need, Operator, Requirement
from tests.engine.engine_pods import daemons, pods
from tests.engine.engine_rig import (
    NOW,
    SETTINGS,
    configured,
    demand_of,
    fleet_of,
    idle,
    remembering,
)

_ON_X = Requirement("model", Operator.IN, ("x",))
_ON_Y = Requirement("model", Operator.IN, ("y",))
_MEMORY = {"memory": 64}
_FLEET = fleet_of(
    [
        configured("a", labels={"model": "x"}, more=_MEMORY),
        configured("b", labels={"model": "y"}, more=_MEMORY),
        configured("w", "west", labels={"model": "x"}, more=_MEMORY),
        idle("z", cpu=8, labels={"model": "z"}, more=_MEMORY),
    ]
)
_FLEET.last_claimed_by[:2] = 0, 1
FLEET = remembering(_FLEET)
NEEDS = (
    pods((2, 2, 1), priority=1),
    pods((1, 1, 3), requirements=(_ON_X,), priority=1),
    pods((1, 1, 1), priority=-1),
    pods((1, 1, 1), group="west", priority=-1),
)


def _demand(*needs: Need, numbers: tuple[int, ...] = (6, 7, 8, 9)) -> Demand:
    """The last need is west's."""
    clusters = ["east"] * (len(needs) - 1) + ["west"]
    demand = demand_of(FLEET, [*zip(clusters, needs, strict=True)])
    return replace(demand, number=np.array(numbers, np.int32))


def _machines(name: str, *values: int) -> Fleet:
    column = getattr(FLEET, name).copy()
    column[: len(values)] = values
    return replace(FLEET, **{name: column})


DEMAND = _demand(*NEEDS)


def _of_east(fleet: Fleet, demand: Demand, priority: int = 1) -> int:
    """The key of cluster east before the pods of its needs are placed."""
    state = CycleState(fleet, demand, CycleMemory(), SETTINGS, NOW)
    common: Any = state.packings._common
    orders = PackingOrder(state.classes, demand.cluster).of_priority(int(state.priorities[0]))
    its = orders.some(orders.clusters == 0)
    keys = common.key_parts.for_pods(common.keys[:1], priority, state.left, its)
    return int(keys[0])


def _needs(
    first: Need = NEEDS[0],
    second: Need = NEEDS[1],
    later: Need = NEEDS[2],
    west: Need = NEEDS[3],
) -> Demand:
    return _demand(first, second, later, west)


@pytest.mark.parametrize(
    ("fleet", "demand"),
    [
        pytest.param(FLEET, _needs(pods((3, 2, 1), priority=1)), id="another number of pods"),
        pytest.param(
            FLEET,
            _needs(
                pods((2, 2, 2), priority=1),
                pods((1, 1, 1), requirements=(_ON_X,), priority=1),
            ),
            id="requests, where the sum is the same",
        ),
        pytest.param(
            FLEET, _needs(later=pods((1, 1, 9), priority=-1)), id="what all pods request together"
        ),
        pytest.param(
            FLEET,
            _needs(second=pods((1, 1, 3), requirements=(_ON_Y,), priority=1)),
            id="what a need accepts",
        ),
        pytest.param(FLEET, _demand(*NEEDS, numbers=(5, 7, 8, 9)), id="another need"),
        pytest.param(_machines("last_claimed_by", 1, 0), DEMAND, id="the claims of needs"),
        pytest.param(_machines("last_claimed_by", 0, 3), DEMAND, id="a need of another cluster"),
        pytest.param(_machines("last_claimed_by", 0, NONE), DEMAND, id="a machine without claim"),
        pytest.param(_machines("flavour", 0, 0), DEMAND, id="a machine of another flavour"),
        pytest.param(
            _machines("state", MachineState.CONFIGURED, MachineState.DRAINING),
            DEMAND,
            id="a machine for one need",
        ),
        pytest.param(_machines("tie_break", 1, 0), DEMAND, id="the order of machines"),
        pytest.param(
            FLEET,
            replace(DEMAND, overheads={0: [daemons(2, memory=32)]}),
            id="half of each machine for DaemonSets",
        ),
        pytest.param(
            _machines("flavour", 0, 1, 0, 0), DEMAND, id="the fleet's largest machine"
        ),
        pytest.param(
            FLEET,
            _needs(*(replace(each, priority_ceiling=0) for each in NEEDS[:2])),
            id="a priority below that of the pods",
        ),
    ],
)  # fmt: skip
def test_a_key_depends_on(fleet: Fleet, demand: Demand) -> None:
    """What is placed can depend on it."""
    assert _of_east(fleet, demand) != _of_east(FLEET, DEMAND)


def test_a_key_depends_on_the_priority_that_is_placed() -> None:
    """Machines may be for lower ones only."""
    assert _of_east(FLEET, DEMAND, priority=2) != _of_east(FLEET, DEMAND)


@pytest.mark.parametrize(
    ("fleet", "demand"),
    [
        pytest.param(
            FLEET, _needs(west=pods((5, 3, 1), group="west", priority=-1)), id="another need"
        ),
        pytest.param(_machines("flavour", 0, 1, 1), DEMAND, id="another machine"),
        pytest.param(FLEET, replace(DEMAND, overheads={1: [daemons(1)]}), id="DaemonSets"),
    ],
)
def test_a_key_does_not_depend_on_another_cluster(fleet: Fleet, demand: Demand) -> None:
    """What is placed does not, either."""
    assert _of_east(fleet, demand) == _of_east(FLEET, DEMAND)


def test_a_key_depends_on_the_priority_of_another_cluster_that_claims_a_machine() -> None:
    """Machines of lower priorities are used last."""
    fleet, lower = _machines("last_claimed_by", 0, 3), replace(NEEDS[3], priority_ceiling=-2)
    assert _of_east(fleet, _needs(west=lower)) != _of_east(fleet, DEMAND)


def test_no_need_that_claims_a_machine_counts_as_none() -> None:
    """Words of zeros must not be those of nothing: need 0, or one without a number, and priority 0
    are usual.
    """
    plain = pods((1, 1, 1))
    demand = _demand(plain, pods((1, 1, 1), group="b"), plain, numbers=(0, NONE, 0))
    state = CycleState(FLEET, demand, CycleMemory(), SETTINGS, NOW)
    common: Any = state.packings._common
    assert (state.priorities == 0).all()
    assert common.key_parts._of_need[:-1].all()
    assert common.key_parts._of_foreign[:-1].all()


def test_a_key_depends_on_the_pods_that_are_left() -> None:
    """Some of a gang may have places already."""
    state = CycleState(FLEET, DEMAND, CycleMemory(), SETTINGS, NOW)
    common: Any = state.packings._common
    order = PackingOrder(state.classes, DEMAND.cluster).of_priority(1)
    keys = [
        int(common.key_parts.for_pods(common.keys[:1], 1, left, order)[0])
        for left in (state.left, np.maximum(state.left - 1, 0))
    ]
    assert keys[0] != keys[1]


def test_a_key_depends_on_the_order_of_classes() -> None:
    """The first ones are placed where they like, the others where there is room."""
    state = CycleState(FLEET, DEMAND, CycleMemory(), SETTINGS, NOW)
    common: Any = state.packings._common
    order = PackingOrder(state.classes, DEMAND.cluster).of_priority(1)
    its = order.some(order.clusters == 0)
    turned = replace(its, classes=its.classes[::-1])
    keys = [
        int(common.key_parts.for_pods(common.keys[:1], 1, state.left, each)[0])
        for each in (its, turned)
    ]
    assert len({*keys}) == len(its.classes) == 2


def test_a_key_depends_on_what_was_placed_before() -> None:
    """On which machine, of which class, and how many."""
    state = CycleState(FLEET, DEMAND, CycleMemory(), SETTINGS, NOW)
    common: Any = state.packings._common
    with_pods: Callable[..., Any] = common.key_parts.with_pods

    def after(machine: int, pod_class: int, count: int) -> int:
        log = PlacementLog(
            np.array([machine], np.int32), np.array([pod_class], np.int32), np.array([count])
        )
        return int(with_pods(common.keys[:1], [log])[0])

    keys = {after(0, 0, 1), after(1, 0, 1), after(0, 1, 1), after(0, 0, 2), int(common.keys[0])}
    assert len(keys) == 5
