"""The invariants detect the violations that they are for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bigfleet.engine.checks.invariants import violations
from bigfleet.engine.decision import (
    Action,
    ActionType,
    ClusterUsage,
    Decision,
    Placements,
    Shortfall,
)
from bigfleet.engine.snapshot import NONE, Demand
from bigfleet.model.ceiling import Ceiling
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need, Size, sizes_of
from tests.engine.engine_pods import daemons, pods
from tests.engine.engine_rig import (
    EVENLY_BY_ZONE,
    RACK,
    ZONE,
    Spec,
    checked,
    configured,
    demand_of,
    fleet_of,
    idle,
    same,
)

IN_A = {RACK: "a", ZONE: "a"}
SPECS = [
    idle("i0", labels=IN_A),
    idle("i1", labels={RACK: "b", ZONE: "b"}),
    configured("c2", "west", labels=IN_A, price=0.5, disruption_cost=float("nan")),
    Spec("d3", MachineState.DRAINING, cluster="east", labels=IN_A),
    configured("c4", "east", cpu=1, labels=IN_A),
    configured("c5", "east", labels={RACK: "b", ZONE: "b"}),
    configured("c6", "east", labels=IN_A),
]
FLEET = fleet_of(SPECS)
ONE = sizes_of([({"cpu": 1}, 1)])[0]
BOOTSTRAP, PREEMPT, RECLAIM, DELETE = (
    ActionType.BOOTSTRAP, ActionType.PREEMPT, ActionType.RECLAIM, ActionType.DELETE,
)  # fmt: skip


def asked(need: Need, *more: tuple[str, Need], reported: tuple[str, ...] = ("east",)) -> Demand:
    """What east asks for first."""
    return demand_of(FLEET, [("east", need), *more], reported=reported)


PLAIN, GANG = asked(pods((4, 1))), asked(pods((4, 1), requirements=(same(),)))
WEST_REPORTS = asked(pods((4, 1)), reported=("east", "west"))
BOTH = asked(pods((4, 1)), ("west", pods((1, 1))), reported=("east", "west"))
SPREAD = asked(pods((4, 1), spread=EVENLY_BY_ZONE))
APART = asked(pods((4, 1), anti_affinity=(ZONE,)))
ALONE = asked(pods((4, 1), anti_affinity=(HOSTNAME_LABEL,)))
UNKNOWN_TOPOLOGY = asked(pods((4, 1), requirements=(same("elsewhere"),)))
NEVER_PREEMPTS = asked(pods((4, 1), never_preempts=True))
TWO_SIZES = asked(pods((1, 1), (1, 2)))


def decision_of(
    counted: dict[int, int], *actions: Action, short: int = 0, need: int = 0, capped: int = 0
) -> Decision:
    """So many pods of one core on each row for need 0, and the rest of its four short."""
    empty = checked(FLEET, asked(pods(group="nothing")))
    rows = np.array([*counted], np.int32)
    claimed = np.full(len(FLEET), NONE, np.int32)
    claimed[rows] = need
    where = Placements(rows, rows * 0 + need, rows * 0, np.array([*counted.values()], np.int64))
    shortfalls = [Shortfall(0, (Size(ONE.amounts, short),), (), 1, 0.0)] if short else []
    return replace(
        empty, actions=actions, shortfalls=shortfalls, claimed_by=claimed,
        find_placements=lambda: where, headroom=frozenset(), reclaims_capped=capped,
    )  # fmt: skip


def boots(row: int) -> Action:
    return Action(BOOTSTRAP, row, 0)


def evicts(row: int) -> Action:
    return Action(PREEMPT, row, 0, 10)


SOUND = decision_of({0: 4}, boots(0))
OVERHEAD = replace(PLAIN, overheads={0: (daemons(1),)})
# Of i0, which costs 1, and c2, which costs 0.5, the cluster has dollars for c2 only.
POOR = replace(WEST_REPORTS, ceilings={0: Ceiling(dollars_per_hour=2.5)})
EVICTED = replace(decision_of({2: 4}, evicts(2)), held={0: ClusterUsage(3, 2_500_000)})


@pytest.mark.parametrize(
    ("demand", "decision", "violation"),
    [
        (PLAIN, replace(SOUND, actions=[boots(0), boots(0)]), "row 0 has 2 actions"),
        (PLAIN, replace(SOUND, actions=[boots(0), Action(RECLAIM, 3, NONE)]),
         "row 3 is DRAINING, Reclaim is not allowed"),
        (PLAIN, replace(SOUND, actions=[boots(0), Action(RECLAIM, 2, NONE)]),
         "taken from an unreachable cluster"),
        (replace(BOTH, unreachable=frozenset({1})), decision_of({2: 4}, evicts(2)),
         "taken from an unreachable cluster"),
        (PLAIN, replace(SOUND, actions=[boots(0), Action(DELETE, 0, NONE)]),
         "is for need -1, but need 0 claims it"),
        (PLAIN, replace(SOUND, actions=[boots(0), boots(1)]), "for need 0, but need -1 claims it"),
        (PLAIN, replace(SOUND, actions=[boots(0), Action(PREEMPT, 4, NONE)]),
         "Preempt of row 4 has no requester"),
        (PLAIN, replace(SOUND, actions=[Action(DELETE, 1, NONE), boots(0)]), "not in the order"),
        (PLAIN, decision_of({4: 1}, evicts(4), short=3), "of its own cluster"),
        (BOTH, decision_of({2: 4}), "are used, but not drained"),
        (BOTH, replace(decision_of({2: 1}), actions=[Action(PREEMPT, 2, 1, 10)]),
         "which another cluster takes"),
        (PLAIN, decision_of({0: 4}), "uses row 0, which is IDLE and not its supply"),
        (asked(pods((4, 1)), ("west", pods((1, 1)))), replace(decision_of({3: 1, 0: 3}, boots(0)),
         claimed_by=np.array([0, NONE, NONE, 1, NONE, NONE, NONE], np.int32)),
         "need 0 uses row 3, which is DRAINING and not its supply"),
        (UNKNOWN_TOPOLOGY, SOUND, "uses row 0, which does not match its profile"),
        (PLAIN, decision_of({0: 5}, boots(0)), "row 0 is overcommitted: {'cpu': 5}"),
        (OVERHEAD, SOUND, "row 0 is overcommitted: {'cpu': 4}"),
        (BOTH, replace(SOUND, find_placements=lambda: Placements(*(np.array(column) for column in (
            (0, 0), (0, 1), (0, 0), (3, 1))))), "row 0 has pods of two clusters"),
        (PLAIN, decision_of({0: 3}, boots(0)), "are accounted for"),
        (PLAIN, decision_of({0: 4}, boots(0), short=1), "are accounted for"),
        (TWO_SIZES, decision_of({0: 2}, boots(0)), "are accounted for"),
        (PLAIN, replace(decision_of({0: 3}, boots(0), short=1), shortfalls=[
            Shortfall(0, (ONE,), (), 1, 0.0)] * 2), "not one per need in the demand's order"),
        (PLAIN, replace(decision_of({0: 4}, boots(0), boots(1)), claimed_by=np.array(
            [0, 0, NONE, NONE, NONE, NONE, NONE], np.int32)),
         "Bootstrap of row 1 for need 0 places no pod"),
        (asked(pods(group="nothing"), reported=("east", "west")),
         decision_of({}, Action(RECLAIM, 2, NONE)), "its disruption cost is unknown"),
        (PLAIN, replace(decision_of({4: 1}, Action(RECLAIM, 4, NONE), short=3)),
         "row 4 is reclaimed with pods placed on it"),
        (GANG, decision_of({0: 2, 1: 2}, boots(0), boots(1)), "machines in 2 domains of rack"),
        (APART, decision_of({0: 1, 4: 1}, boots(0), short=2), "has two pods in one domain of zone"),
        (ALONE, decision_of({0: 2}, boots(0), short=2),
         "two pods in one domain of kubernetes.io/hostname"),
        (SPREAD, decision_of({4: 1, 5: 3}), "beyond max_skew of zone"),
        (replace(NEVER_PREEMPTS, reported=frozenset({0, 1})), decision_of({2: 4}, evicts(2)),
         "need 0 preempts, but its preemptionPolicy is Never"),
        (replace(GANG, reported=frozenset({0, 1})), decision_of({2: 3}, evicts(2), short=1),
         "its gang stays incomplete"),
        (WEST_REPORTS, decision_of({2: 4}, evicts(2)),
         "need 0 preempts row 2, although row 0 is free"),
        (replace(POOR, ceilings={0: Ceiling(dollars_per_hour=3)}), EVICTED,
         "need 0 preempts row 2, although row 0 is free"),
    ],
)  # fmt: skip
def test_each_breach_has_its_sentence(demand: Demand, decision: Decision, violation: str) -> None:
    """A valid decision that was tampered with is detected."""
    assert any(violation in sentence for sentence in violations(FLEET, demand, decision))


@pytest.mark.parametrize(
    ("demand", "decision"),
    [
        (PLAIN, SOUND),
        (GANG, SOUND),
        (WEST_REPORTS, decision_of({2: 4}, capped=1)),
        (SPREAD, decision_of({0: 4}, boots(0))),
        (SPREAD, decision_of({4: 1, 5: 2, 0: 1}, boots(0))),
        (SPREAD, decision_of({4: 1, 5: 3}, Action(RECLAIM, 6, NONE))),
        (BOTH, replace(decision_of({2: 4}, evicts(2)),
                       shortfalls=[Shortfall(1, (ONE,), (), 1, 0.0)])),
        (POOR, EVICTED),
    ],
)  # fmt: skip
def test_a_sound_decision_breaks_nothing(demand: Demand, decision: Decision) -> None:
    """Also one in which the cap holds back another cluster's machine, one that spreads over the
    only domain it may enter, one that releases a machine and leaves the pods on others uneven,
    one that evicts because another need uses the free machine, and one that evicts because the free
    machine would cost more than the cluster's ceiling allows.
    """
    assert [*violations(FLEET, demand, decision)] == []
