"""Time passes in a synthetic world: orders are carried out, machines fail, demand moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bigfleet.bench.worlds import World
from bigfleet.engine.columns import columns_of
from bigfleet.engine.decision import ActionType, Decision
from bigfleet.engine.need_columns import NeedColumns, need_columns_of
from bigfleet.engine.snapshot import NONE, Demand, Flags, Fleet
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need, Size

_BECOMES = {
    ActionType.BOOTSTRAP: MachineState.CONFIGURED,
    ActionType.PROVISION: MachineState.CONFIGURED,
    ActionType.PREEMPT: MachineState.CONFIGURED,
    ActionType.RECLAIM: MachineState.IDLE,
    ActionType.DELETE: MachineState.SPECULATIVE,
}


def carry_out(world: World, decision: Decision) -> World:
    """The world after all orders of `decision` have been carried out at once."""
    fleet, demand = world.fleet, world.demand
    state, cluster = fleet.state.copy(), fleet.cluster.copy()
    rows = np.array([action.row for action in decision.actions], np.intp)
    needs = np.array([action.need for action in decision.actions], np.intp)
    states = [int(_BECOMES[action.type]) for action in decision.actions]
    state[rows] = np.array(states, np.uint8)
    bound = state[rows] == MachineState.CONFIGURED
    cluster[rows] = np.where(bound, np.append(demand.cluster, NONE)[needs], NONE)
    claimed = decision.claimed_by
    priorities = np.array([*(need.priority for need in demand.needs), 0], np.int32)
    held = claimed != NONE
    fleet = replace(
        fleet,
        state=state,
        cluster=cluster.astype(np.int32),
        last_claimed_by=claimed,
        priority=np.where(held, priorities[claimed], fleet.priority),
        headroom=_flags(len(fleet), decision.headroom),
    )
    return replace(world, fleet=fleet)


def lose_machines(world: World, share: float, random: np.random.Generator) -> World:
    """This share of the machines in service fails, and as many others become available."""
    fleet = world.fleet
    state, cluster, claimed = (
        fleet.state.copy(),
        fleet.cluster.copy(),
        fleet.last_claimed_by.copy(),
    )
    working = np.flatnonzero(state == MachineState.CONFIGURED)
    lost = random.choice(working, int(len(working) * share), replace=False)
    failed = np.flatnonzero(state == MachineState.FAILED)
    elastic = columns_of(fleet.flavours).elastic
    back = np.where(elastic[fleet.flavour[failed]], MachineState.SPECULATIVE, MachineState.IDLE)
    state[failed] = back.astype(np.uint8)
    state[lost] = int(MachineState.FAILED)
    cluster[lost] = NONE
    claimed[lost] = NONE
    return replace(
        world, fleet=replace(fleet, state=state, cluster=cluster, last_claimed_by=claimed)
    )


def move_demand(world: World, share: float, random: np.random.Generator) -> World:
    """This share of the needs, over all priorities, has some pods more or fewer of each size."""
    last = need_columns_of(world.demand.needs)
    needs = list(last)
    for index in random.choice(len(needs), int(len(needs) * share), replace=False).tolist():
        needs[index] = _resized(needs[index], float(random.uniform(0.9, 1.1)))
    return replace(world, demand=replace(world.demand, needs=NeedColumns(needs, last)))


def answer_queries(world: World, decision: Decision, now_seconds: float) -> World:
    """The operators say what the release of the machines that `decision` asked about disrupts, and
    demand has fallen everywhere, so that each cluster may have surplus machines.
    """
    costs = np.full(len(world.fleet), np.nan)
    for rows in decision.disruption_cost_queries.values():
        costs[rows] = 1.0 + rows % 7
    fell = dict.fromkeys(range(len(world.fleet.clusters)), now_seconds)
    return World(
        replace(world.fleet, disruption_cost=costs), replace(world.demand, fell_seconds=fell)
    )


def with_claims_of(fleet: Fleet, last: Demand, demand: Demand) -> Fleet:
    """`fleet`, whose claims are of needs of `last`, with those of the same needs of `demand`."""
    if last is demand:
        return fleet
    place = {key: at for at, key in enumerate(_keys(demand))}
    places = np.array([*(place.get(key, NONE) for key in _keys(last)), NONE], np.int32)
    return replace(fleet, last_claimed_by=places[fleet.last_claimed_by])


def _keys(demand: Demand) -> Iterator[tuple[int, tuple[str, str]]]:
    clusters = demand.cluster.tolist()
    return ((c, need.key) for c, need in zip(clusters, demand.needs, strict=True))


def _resized(need: Need, factor: float) -> Need:
    sizes = tuple(Size(size.amounts, max(1, round(size.pods * factor))) for size in need.sizes)
    return replace(need, sizes=sizes)


def _flags(number: int, rows: frozenset[int]) -> Flags:
    flags = np.zeros(number, np.bool_)
    flags[sorted(rows)] = True
    return flags
