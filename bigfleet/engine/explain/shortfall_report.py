"""Shortfall report of a cycle: the most urgent shortfalls with reasons, the others counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bigfleet.engine.decision import Decision, Shortfall
from bigfleet.engine.explain.explain import Explainer
from bigfleet.engine.explain.explanation import Reason
from bigfleet.engine.snapshot import Demand, Fleet, Longs
from bigfleet.model import resources
from bigfleet.model.group import Additional
from bigfleet.model.need import Need, Profile
from bigfleet.model.report_limits import MAX_SHORTFALLS

# Younger shortfalls often resolve themselves: machines are being created, pods come and go.
ESCALATE_AFTER_CYCLES = 5
# Machines of other shards would not change these.
_OWN_REASONS = (Reason.CEILING_REACHED, Reason.CLUSTER_SUSPENDED)


@dataclass(frozen=True)
class ShortfallGroup:
    """The needs of one cluster and profile that are short. Age, reason and message are those of the
    one that has been short longest.
    """

    cluster: str
    profile: Profile
    priority: int
    #: how many needs: one, or several gangs
    needs: int
    #: how many pods are unplaced; whole gangs if each fits on one machine
    count: int
    deficit: Mapping[str, int]
    age_cycles: int
    since_seconds: float
    reason: Reason
    message: str
    #: other shards should help: not with additional needs and begun gangs, because no other shard
    #: has machines in their domain, nor if the cluster may not have more
    escalates: bool
    #: [F] int64, how many of the unplaced pods one more machine of each flavour would serve
    pods_per_machine: Longs


@dataclass(frozen=True)
class ShortfallReport:
    """The shortfalls of a cycle."""

    #: by priority, then age; at most MAX_SHORTFALLS
    rows: Sequence[ShortfallGroup]
    #: how many others are old enough to escalate
    unreported: int


def report(fleet: Fleet, demand: Demand, decision: Decision) -> ShortfallReport:
    """The shortfalls of a decision."""
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
    rows = [_row(fleet, demand, explainer, group) for group in urgent[:MAX_SHORTFALLS]]
    others = sum(group[0].age_cycles > ESCALATE_AFTER_CYCLES for group in urgent[MAX_SHORTFALLS:])
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
        escalates=oldest.age_cycles > ESCALATE_AFTER_CYCLES
        and reason not in _OWN_REASONS
        and not _bound_to_domain(need, oldest),
        pods_per_machine=explainer.one_more_machine.pods(group),
    )


def _bound_to_domain(need: Need, short: Shortfall) -> bool:
    has_begun = need.profile.same_key is not None and short.pods < need.pods
    return has_begun or isinstance(need.group, Additional)
