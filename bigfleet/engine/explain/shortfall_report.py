"""The shortfalls that are passed on: the most urgent ones with reasons, the others as a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bigfleet.engine.decision import Decision, Shortfall
from bigfleet.engine.explain.explain import Explainer, Reason
from bigfleet.engine.snapshot import Demand, Fleet
from bigfleet.model import resources
from bigfleet.model.need import Need, Profile

MAX_ROWS = 100
# Shortfalls as old as this pass by themselves: machines are being made, pods come and go.
ESCALATE_AFTER_CYCLES = 5


@dataclass(frozen=True)
class ShortfallGroup:
    """The `needs` of one cluster and profile that are short: a plain one, or so many gangs, served
    by this `priority`.

    `count` is how many pods (whole gangs, where each fits on one machine) they lack together. Age,
    reason and its words are those of the one that has been short for longest. `escalates` asks for
    help from outside the shard; a need whose machines must share a domain, or be beyond those that
    are there, never does, since no other shard has machines in it.
    """

    cluster: str
    profile: Profile
    priority: int
    needs: int
    count: int
    deficit: Mapping[str, int]
    age_cycles: int
    since_seconds: float
    reason: Reason
    message: str
    escalates: bool


@dataclass(frozen=True)
class ShortfallReport:
    """At most MOST_ROWS rows, by priority, then age; `unreported` counts the others that are as
    old as those that escalate.
    """

    rows: Sequence[ShortfallGroup]
    unreported: int


def report(fleet: Fleet, demand: Demand, decision: Decision) -> ShortfallReport:
    """What a decision left short."""
    by_profile: dict[tuple[int, str], list[Shortfall]] = {}
    for short in decision.shortfalls:
        key = int(demand.cluster[short.need]), demand.needs[short.need].profile.fingerprint
        by_profile.setdefault(key, []).append(short)
    oldest_first = [
        sorted(each, key=lambda short: -short.age_cycles) for each in by_profile.values()
    ]

    def urgency(group: Sequence[Shortfall]) -> tuple[int, int, int]:
        oldest = group[0]
        return -demand.needs[oldest.need].priority, -oldest.age_cycles, oldest.need

    urgent = sorted(oldest_first, key=urgency)
    explainer = Explainer(fleet, demand, decision)
    rows = [_row(fleet, demand, explainer, group) for group in urgent[:MAX_ROWS]]
    others = sum(group[0].age_cycles > ESCALATE_AFTER_CYCLES for group in urgent[MAX_ROWS:])
    return ShortfallReport(rows, others)


def _row(
    fleet: Fleet, demand: Demand, explainer: Explainer, group: Sequence[Shortfall]
) -> ShortfallGroup:
    oldest = group[0]
    need = demand.needs[oldest.need]
    reason, message = explainer.reason_and_message(oldest.need)
    return ShortfallGroup(
        cluster=fleet.clusters[int(demand.cluster[oldest.need])],
        profile=need.profile,
        priority=need.priority,
        needs=len(group),
        count=sum(s.pods for s in group),
        deficit=resources.add(s.deficit for s in group),
        age_cycles=oldest.age_cycles,
        since_seconds=oldest.since_seconds,
        reason=reason,
        message=message,
        escalates=oldest.age_cycles > ESCALATE_AFTER_CYCLES and not _bound_to_domain(need),
    )


def _bound_to_domain(need: Need) -> bool:
    return need.profile.same_key is not None or need.is_additional
