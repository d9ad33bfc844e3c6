"""The shortfalls that are passed on: the most urgent ones with reasons, the others as a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bigfleet.engine.decision import Decision, Shortfall
from bigfleet.engine.explain import Explainer, Reason
from bigfleet.engine.snapshot import Demand, Fleet
from bigfleet.model.need import Need, Profile

MOST_ROWS = 100
# Shortfalls as old as this pass by themselves: machines are being made, pods come and go.
PATIENCE_CYCLES = 5


@dataclass(frozen=True)
class ReportedShortfall:
    """One need that is short, of one cluster.

    `count` is in how many units of the need it is short: its smallest unit, or the whole where it
    names none. `escalates` asks for help from outside the shard; a need whose machines must share a
    domain never does, since no other shard has machines in it.
    """

    cluster: str
    profile: Profile
    group: str
    priority: int
    count: int
    deficit: Mapping[str, int]
    age_cycles: int
    since_seconds: float
    interruption_bucket: int
    reason: Reason
    escalates: bool


@dataclass(frozen=True)
class ShortfallReport:
    """At most MOST_ROWS rows, by priority, then age; `unreported` counts the others."""

    rows: Sequence[ReportedShortfall]
    unreported: int


def report(fleet: Fleet, demand: Demand, decision: Decision) -> ShortfallReport:
    """What a decision left short."""

    def urgency(shortfall: Shortfall) -> tuple[int, int, int]:
        priority = demand.needs[shortfall.need].profile.priority
        return -priority, -shortfall.age_cycles, shortfall.need

    urgent = sorted(decision.shortfalls, key=urgency)[:MOST_ROWS]
    explainer = Explainer(fleet, demand, decision)
    rows = [_row(fleet, demand, explainer, shortfall) for shortfall in urgent]
    return ShortfallReport(rows, len(decision.shortfalls) - len(rows))


def _row(
    fleet: Fleet, demand: Demand, explainer: Explainer, shortfall: Shortfall
) -> ReportedShortfall:
    need = demand.needs[shortfall.need]
    reason = explainer.need(shortfall.need).reason
    assert reason is not None, "who is short has a reason"
    aged = shortfall.age_cycles > PATIENCE_CYCLES
    return ReportedShortfall(
        cluster=fleet.clusters[int(demand.cluster[shortfall.need])],
        profile=need.profile,
        group=need.group,
        priority=need.profile.priority,
        count=units_missing(need, shortfall.deficit),
        deficit=shortfall.deficit,
        age_cycles=shortfall.age_cycles,
        since_seconds=shortfall.since_seconds,
        interruption_bucket=need.profile.interruption_bucket,
        reason=reason,
        escalates=aged and need.profile.same_key is None,
    )


def units_missing(need: Need, deficit: Mapping[str, int]) -> int:
    """How many of the need's smallest units `deficit` amounts to, at least one."""
    sizes = {name: size for name, size in need.min_unit.items() if size > 0}
    return max([1, *(-(-deficit[name] // size) for name, size in sizes.items() if name in deficit)])
