"""Several cycles in a row, and the actions of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decision import ActionType, Decision
from bigfleet.engine.snapshot import NONE, EngineConfig
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need
from tests.engine.engine_rig import (
    IN_FLIGHT,
    NOW,
    Spec,
    action_names,
    carried_out,
    checked,
    demand_of,
    fleet_of,
)

_ARRIVED = {
    MachineState.CREATING: MachineState.IDLE,
    MachineState.CONFIGURING: MachineState.CONFIGURED,
    MachineState.DRAINING: MachineState.IDLE,
    MachineState.DELETING: MachineState.SPECULATIVE,
}


class Story:
    """A fleet over several cycles with one demand; `decision` is the last one."""

    decision: Decision

    def __init__(
        self,
        specs: Sequence[Spec],
        *needs: tuple[str, Need],
        settings: EngineConfig | None = None,
        unreachable: Sequence[str] = (),
    ) -> None:
        self.specs, self.settings = specs, settings or EngineConfig()
        self.fleet = fleet_of(specs)
        self.demand = demand_of(self.fleet, needs, unreachable=unreachable)
        self.cycle_memory, self.now = CycleMemory(), NOW

    def cycle(self, outcome: Mapping[ActionType, MachineState] | None = None) -> list[str]:
        """Decide, start the actions, advance one second; operations stay in progress by default."""
        self.decision = checked(self.fleet, self.demand, self.settings, self.now, self.cycle_memory)
        done = IN_FLIGHT if outcome is None else outcome
        self.fleet = carried_out(self.fleet, self.demand, self.decision, done)
        self.cycle_memory, self.now = self.decision.cycle_memory, self.now + 1
        return action_names(self.specs, self.decision)

    def orders_within(self, seconds: int) -> list[str]:
        """The actions of the first cycle with any within so many seconds; none if there are none.

        Surplus machines are looked for once in each sixth of a hold.
        """
        return next(filter(None, (self.cycle() for _ in range(seconds))), [])

    def lose_actions(self) -> list[str]:
        """Run a cycle whose actions are lost; only its memory stays."""
        self.decision = checked(self.fleet, self.demand, self.settings, self.now, self.cycle_memory)
        claims = self.decision.claimed_by
        self.fleet = replace(self.fleet, last_claimed_by=claims.copy())
        self.cycle_memory, self.now = self.decision.cycle_memory, self.now + 1
        return action_names(self.specs, self.decision)

    def arrive(self) -> None:
        """Finish all operations in progress."""
        state, cluster = self.fleet.state.copy(), self.fleet.cluster.copy()
        for before, after in _ARRIVED.items():
            rows = self.fleet.state == before
            state[rows] = after
            if after is not MachineState.CONFIGURED:
                cluster[rows] = NONE
        since = np.where(state == MachineState.IDLE, self.now, self.fleet.unused_since_seconds)
        self.fleet = replace(self.fleet, state=state, cluster=cluster, unused_since_seconds=since)

    def settle(self, cycles: int = 20) -> list[str]:
        """Run cycles until there are no actions; each operation finishes before the next cycle."""
        orders: list[str] = []
        for _ in range(cycles):
            ordered = self.cycle()
            if not ordered:
                return orders
            orders += ordered
            self.arrive()
        raise AssertionError(f"no rest after {cycles} cycles: {orders}")

    def short(self) -> dict[int, dict[str, int]]:
        """The shortfalls of the last cycle by need."""
        return {s.need: dict(s.deficit) for s in self.decision.shortfalls}
