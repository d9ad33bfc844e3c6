"""Fleets and demands from readable specifications, and the fleet after a decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bigfleet.engine.checks.invariants import violations
from bigfleet.engine.columns import columns_of
from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decide import decide
from bigfleet.engine.decision import Action, ActionType, Decision
from bigfleet.engine.snapshot import NONE, Demand, EngineConfig, Flavour, Fleet
from bigfleet.model import penalty
from bigfleet.model.group import ADDITIONAL, group_of_text
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.need import (
    Need,
    Operator,
    Requirement,
    Spread,
    Taint,
    profile,
    sizes_of_aggregate,
)

RACK, ZONE = "rack", "zone"
NOW = 10_000.0
SETTINGS = EngineConfig(reclaim_cap_fraction=0.3, reclaim_hold_seconds=0.0)
# So that one decision shows all reclaims, within the cap or without it.
NO_HOLD = EngineConfig(reclaim_hold_seconds=0.0)
UNLIMITED = EngineConfig(reclaim_cap_fraction=1.0, reclaim_hold_seconds=0.0)
EVENLY_BY_ZONE = (Spread(ZONE, 1, True),)


@dataclass(frozen=True)
class Spec:
    """One machine."""

    name: str
    state: MachineState = MachineState.IDLE
    cpu: int = 4
    price: float = 1.0
    probability: float = 0.0
    cluster: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, int] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    capacity_type: CapacityType = CapacityType.BARE_METAL
    last_claimed_by: int = NONE
    last_priority: int = 0
    last_penalty: int = penalty.ZERO
    idle_since: float = float("nan")
    destination: str = ""
    headroom: bool = False
    disruption_cost: float = float("nan")


def idle(name: str, **kwargs: object) -> Spec:
    """An Idle machine."""
    return replace(Spec(name), **kwargs)  # type: ignore[arg-type]


def speculative(name: str, **kwargs: object) -> Spec:
    """A Speculative on-demand machine."""
    elastic = Spec(name, MachineState.SPECULATIVE, capacity_type=CapacityType.ON_DEMAND)
    return replace(elastic, **kwargs)  # type: ignore[arg-type]


def configured(name: str, cluster: str = "east", **kwargs: object) -> Spec:
    """A Configured machine in `cluster`."""
    working = Spec(
        name, MachineState.CONFIGURED, cluster=cluster, idle_since=0.0, disruption_cost=0.0
    )
    return replace(working, **kwargs)  # type: ignore[arg-type]


def zoned(zones: str) -> list[Spec]:
    """Idle machines, one per letter; the earlier, the cheaper."""
    return [idle(f"{zone}{at}", labels={ZONE: zone}, price=at + 1) for at, zone in enumerate(zones)]


def fleet_of(specs: Sequence[Spec]) -> Fleet:
    """A fleet with one row per spec, in the order given; names break ties."""
    named = {s.cluster for s in specs} | {s.destination for s in specs}
    clusters = sorted({"east", "west"} | (named - {""}))
    flavours: list[Flavour] = []
    rows = [_flavour_index(flavours, _flavour(spec)) for spec in specs]
    by_name = sorted(spec.name for spec in specs)
    return Fleet(
        flavours=flavours,
        clusters=clusters,
        flavour=np.array(rows, np.int32),
        state=np.array([s.state for s in specs], np.uint8),
        cluster=np.array([clusters.index(s.cluster) if s.cluster else NONE for s in specs], "i4"),
        destination=np.array(
            [clusters.index(s.destination) if s.destination else NONE for s in specs], np.int32
        ),
        last_claimed_by=np.array([s.last_claimed_by for s in specs], np.int32),
        priority=np.array([s.last_priority for s in specs], np.int32),
        interruption_bucket=np.full(len(specs), penalty.ZERO, np.uint8),
        reclamation_bucket=np.array([s.last_penalty for s in specs], np.uint8),
        unused_since_seconds=np.array([s.idle_since for s in specs], np.float64),
        headroom=np.array([s.headroom for s in specs], np.bool_),
        disruption_cost=np.array([s.disruption_cost for s in specs], np.float64),
        tie_break=np.array([by_name.index(s.name) for s in specs], np.int64),
    )


def _flavour(spec: Spec) -> Flavour:
    allocatable = {"cpu": spec.cpu, **spec.more}
    return Flavour(
        dict(spec.labels),
        spec.capacity_type,
        spec.price,
        spec.probability,
        allocatable,
        spec.taints,
    )


def _flavour_index(flavours: list[Flavour], flavour: Flavour) -> int:
    if flavour not in flavours:
        flavours.append(flavour)
    return flavours.index(flavour)


def need_of(
    cpu: int,
    *requirements: Requirement,
    unit: int = 0,
    more: Mapping[str, int] | None = None,
    spread: tuple[Spread, ...] = (),
    interruption: int = penalty.ZERO,
    reclamation: int = penalty.ZERO,
    group: str = "",
    priority: int = 0,
) -> Need:
    """A need for `cpu` in units of `unit` (0: no floor)."""
    wanted = profile(requirements, spread, priority, interruption, reclamation)
    sizes = sizes_of_aggregate({"cpu": cpu, **(more or {})}, {"cpu": unit or 1})
    return Need(wanted, sizes, group_of_text(group))


def same(key: str = RACK) -> Requirement:
    """All machines in one domain of `key`."""
    return Requirement(key, Operator.SAME)


def remembering(fleet: Fleet) -> Fleet:
    """The same fleet as a shard keeps it: decisions remember by its flavours what they computed."""
    return replace(fleet, flavours=columns_of(fleet.flavours))


def demand_of(
    fleet: Fleet,
    needs: Sequence[tuple[str, Need]],
    reported: Iterable[str] = ("east", "west"),
    unreachable: Iterable[str] = (),
) -> Demand:
    """The needs in the order given, each of a cluster."""
    clusters = [fleet.clusters.index(cluster) for cluster, _ in needs]
    reported_numbers, unreachable_numbers = (
        frozenset(fleet.clusters.index(cluster) for cluster in names)
        for names in (reported, unreachable)
    )
    return Demand(
        [need for _, need in needs],
        np.array(clusters, np.int32),
        reported_numbers,
        unreachable_numbers,
    )


def checked(
    fleet: Fleet,
    demand: Demand,
    settings: EngineConfig | None = None,
    now: float = NOW,
    cycle_memory: CycleMemory | None = None,
) -> Decision:
    """A decision; an assertion fails for each invariant that it breaks."""
    decision = decide(fleet, demand, cycle_memory or CycleMemory(), settings or NO_HOLD, now)
    assert [*violations(fleet, demand, decision)] == []
    return decision


def action_names(specs: Sequence[Spec], decision: Decision) -> list[str]:
    """The actions as short sentences."""
    return [f"{action.type.value} {specs[action.row].name}" for action in decision.actions]


def decided(specs: Sequence[Spec], *needs: Need) -> list[str]:
    """The actions for cluster east's `needs`."""
    fleet = fleet_of(specs)
    demand = demand_of(fleet, [("east", need) for need in needs])
    return action_names(specs, checked(fleet, demand))


def comparable(decision: Decision) -> tuple[object, ...]:
    """A decision as plain values that can be compared and printed."""
    shortfalls = [
        (s.need, dict(s.deficit), s.age_cycles, s.since_seconds) for s in decision.shortfalls
    ]
    actions = [(a.type.value, a.row, a.need, a.grace_seconds) for a in decision.actions]
    claims = decision.claimed_by.tolist()
    headroom = sorted(decision.headroom)
    return actions, shortfalls, claims, headroom, decision.reclaims_capped, decision.cycle_memory


IN_FLIGHT = {
    ActionType.BOOTSTRAP: MachineState.CONFIGURING,
    ActionType.PROVISION: MachineState.CREATING,
    ActionType.PREEMPT: MachineState.DRAINING,
    ActionType.RECLAIM: MachineState.DRAINING,
    ActionType.DELETE: MachineState.DELETING,
}
DONE = {
    ActionType.BOOTSTRAP: MachineState.CONFIGURED,
    ActionType.PROVISION: MachineState.CONFIGURED,
    ActionType.PREEMPT: MachineState.IDLE,
    ActionType.RECLAIM: MachineState.IDLE,
    ActionType.DELETE: MachineState.SPECULATIVE,
}


def carried_out(
    fleet: Fleet, demand: Demand, decision: Decision, outcome: Mapping[ActionType, MachineState]
) -> Fleet:
    """The fleet after all actions, each of which left its machine in the state of `outcome`."""
    state, cluster = fleet.state.copy(), fleet.cluster.copy()
    claimed = decision.claimed_by
    idle_since = fleet.unused_since_seconds.copy()
    for action in decision.actions:
        state[action.row] = new = outcome[action.type]
        cluster[action.row] = _cluster_after(fleet, demand, action, new)
        idle_since[action.row] = NOW if new is MachineState.IDLE else 0.0
    last = fleet.last_claimed_by
    # Additional needs leave machines in service that they do not count to others.
    additional = [n for n, need in enumerate(demand.needs) if need.group == ADDITIONAL]
    left = np.isin(last, additional) & (state == MachineState.CONFIGURED)
    bound_for = np.where(np.isin(state, [int(s) for s in _BOUND_FOR]) & ~left, last, NONE)
    last_claimed_by = np.where(claimed == NONE, bound_for, claimed).astype(np.int32)
    return replace(
        fleet,
        state=state,
        cluster=cluster,
        last_claimed_by=last_claimed_by,
        unused_since_seconds=idle_since,
        headroom=np.isin(np.arange(len(fleet)), [*decision.headroom]),
    )


_BOUND_FOR = (MachineState.CREATING, MachineState.CONFIGURING, MachineState.CONFIGURED)


def _cluster_after(fleet: Fleet, demand: Demand, action: Action, state: MachineState) -> int:
    if state in (MachineState.CONFIGURING, MachineState.CONFIGURED):
        return int(demand.cluster[action.need])
    return int(fleet.cluster[action.row]) if state is MachineState.DRAINING else NONE
