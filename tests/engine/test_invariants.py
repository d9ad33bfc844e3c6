"""The invariants see what they are there for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from engine_rig import RACK, Spec, checked, configured, demand_of, fleet_of, idle, need_of, same

from bigfleet.engine.decision import Action, ActionKind, Decision, Shortfall
from bigfleet.engine.invariants import violations
from bigfleet.engine.snapshot import NONE
from bigfleet.model.machine import MachineState

SPECS = [
    idle("i0", labels={RACK: "a"}),
    idle("i1", labels={RACK: "b"}),
    configured("c", "west", labels={RACK: "a"}),
    Spec("d", MachineState.DRAINING, cluster="east", labels={RACK: "a"}),
]
FLEET = fleet_of(SPECS)
DEMAND = demand_of(FLEET, [("east", need_of(4, same()))], reported=["east"])
SOUND = checked(FLEET, DEMAND)
GREEDY = replace(SOUND, claimed_by=np.array([NONE, NONE, 0, NONE], np.int32))
SHORT = replace(GREEDY, shortfalls=[Shortfall(0, {"cpu": 1}, 1, 0.0)])


def claims(*by_row: int) -> Decision:
    """The sound decision with other claims."""
    return replace(SOUND, claimed_by=np.array(by_row, np.int32))


def acts(*actions: Action) -> Decision:
    """The sound decision with more actions."""
    return replace(SOUND, actions=[*SOUND.actions, *actions])


@pytest.mark.parametrize(
    ("decision", "complaint"),
    [
        (acts(*SOUND.actions), "gets 2 orders"),
        (acts(Action(ActionKind.RECLAIM, 3, NONE)), "is DRAINING, Reclaim is not possible"),
        (acts(Action(ActionKind.RECLAIM, 2, NONE)), "is not heard"),
        (acts(Action(ActionKind.DELETE, 0, NONE)), "for need -1, but 0 counts it"),
        (acts(Action(ActionKind.BOOTSTRAP, 1, 0)), "but -1 counts it"),
        (replace(acts(Action(ActionKind.DELETE, 1, NONE)), actions=acts(
            Action(ActionKind.DELETE, 1, NONE)).actions[::-1]), "not in the order"),
        (claims(0, NONE, 0, NONE), "none of which is drained for it"),
        (claims(0, 0, NONE, NONE), "is IDLE and not its supply"),
        (acts(Action(ActionKind.PREEMPT, 3, NONE)), "gets Preempt for nobody"),
        (replace(SHORT, actions=[Action(ActionKind.PREEMPT, 2, 0, 10)]), "its gang is not whole"),
        (replace(GREEDY, actions=[Action(ActionKind.PREEMPT, 2, 0, 10)]), "though row 0 is free"),
        (replace(GREEDY, actions=[Action(ActionKind.RECLAIM, 3, 0, 10)]), "of its own cluster"),
        (claims(0, 0, NONE, NONE), "in 2 domains of rack"),
        (claims(NONE, NONE, NONE, NONE), "lacks {'cpu': 4}"),
        (replace(SOUND, shortfalls=[Shortfall(0, {"cpu": 1}, 1, 0.0)]), "lacks {}"),
        (replace(claims(0, 0, NONE, NONE), actions=[*SOUND.actions,
            Action(ActionKind.BOOTSTRAP, 1, 0)]), "covered without it"),
    ],
)  # fmt: skip
def test_each_breach_has_its_sentence(decision: Decision, complaint: str) -> None:
    """A sound decision that was tampered with is found out."""
    assert [*violations(FLEET, DEMAND, SOUND)] == []
    assert any(complaint in sentence for sentence in violations(FLEET, DEMAND, decision))
