"""What a decision is computed from. It can be read without the engine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.snapshot import Demand, Fleet
from bigfleet.model.need import NeedKey
from bigfleet.services.shard.decide.quarantine import Quarantine
from bigfleet.services.shard.fleet.backoff import Offering
from bigfleet.services.shard.fleet.failures import Failure
from bigfleet.services.shard.records.wants import Wants


@dataclass(frozen=True)
class CycleInputs:
    """The state at one moment, immutable. `asked` is the demand as reported, `cycle_memory` the
    state carried over from the last decision. `machine_ids` names the rows, `hints_for` are the
    clusters that get capacity hints, `report_shortfalls` requests demand statuses, `quarantine` has
    the needs that the last decision left out, `unfolded` the gangs that are not to wait for one
    machine that holds them, `unavailable` the offerings in backoff.
    """

    fleet: Fleet
    machine_ids: Sequence[bytes]
    wants: Wants
    asked: Demand
    now_seconds: float
    cycle_memory: CycleMemory
    hints_for: Collection[str] = ()
    report_shortfalls: bool = False
    quarantine: Quarantine = field(default_factory=dict)
    unfolded: frozenset[NeedKey] = frozenset()
    unavailable: Mapping[Offering, Failure] = field(default_factory=dict)
