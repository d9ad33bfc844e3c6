"""Pods of many sizes and constraints, and where a decision places them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from bigfleet.engine.decision import Decision
from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model import penalty
from bigfleet.model.group import group_of_text
from bigfleet.model.need import (
    Need,
    NodeOverhead,
    Requirement,
    Spread,
    Term,
    Toleration,
    profile,
    sizes_of,
)
from tests.engine.engine_rig import NO_HOLD, Spec, action_names, checked, demand_of, fleet_of


def pods(
    *lots: tuple[int, ...],
    more: Mapping[str, int] | None = None,
    requirements: tuple[Requirement, ...] = (),
    alternatives: tuple[Term, ...] = (),
    tolerations: tuple[Toleration, ...] = (),
    spread: tuple[Spread, ...] = (),
    anti_affinity: tuple[str, ...] = (),
    never_preempts: bool = False,
    interruption: int = penalty.ZERO,
    reclamation: int = penalty.ZERO,
    group: str = "",
    priority: int = 0,
) -> Need:
    """A need for batches of equal pods (count, CPU, memory), which all request `more`, too."""
    wanted = profile(
        requirements,
        spread,
        priority,
        interruption,
        reclamation,
        alternatives=alternatives,
        tolerations=tolerations,
        anti_affinity=anti_affinity,
        never_preempts=never_preempts,
    )
    amounts = [dict(zip(("cpu", "memory"), lot[1:], strict=False)) for lot in lots]
    lots_and_counts = zip(amounts, lots, strict=True)
    sizes = sizes_of(({**(more or {}), **each}, lot[0]) for each, lot in lots_and_counts)
    return Need(wanted, sizes, group_of_text(group))


def daemons(cpu: int, *requirements: Requirement, **more: int) -> NodeOverhead:
    """What DaemonSets request on each machine that meets `requirements`."""
    return NodeOverhead(requirements, (), (), tuple(sorted({"cpu": cpu, **more}.items())))


class Outcome(NamedTuple):
    """A decision for cluster east as text: the actions; how many pods of which need each
    machine holds, by its name; and how many pods of which need are unplaced.
    """

    actions: list[str]
    places: dict[str, dict[int, int]]
    short: dict[int, int]


def outcome(
    specs: Sequence[Spec],
    *needs: Need,
    settings: EngineConfig = NO_HOLD,
    overheads: Sequence[NodeOverhead] = (),
) -> Outcome:
    """The outcome of a decision on cluster east's `needs`."""
    fleet = fleet_of(specs)
    demand = demand_of(fleet, [("east", need) for need in needs])
    demand = replace(demand, overheads={fleet.clusters.index("east"): overheads})
    decision = checked(fleet, demand, settings)
    short = {shortfall.need: shortfall.pods for shortfall in decision.shortfalls}
    return Outcome(action_names(specs, decision), places(specs, decision), short)


def places(specs: Sequence[Spec], decision: Decision) -> dict[str, dict[int, int]]:
    """How many pods of which need each machine holds, by its name."""
    found: dict[str, dict[int, int]] = {}
    columns = (column.tolist() for column in decision.placements)
    for row, need, _, number in zip(*columns, strict=True):
        here = found.setdefault(specs[row].name, {})
        here[need] = here.get(need, 0) + number
    return found
