"""The target shares of the chosen clusters, from their current ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from bigfleet.fedhpa.shares.cluster_choice import Chosen
from bigfleet.fedhpa.shares.division import in_proportion, lower_evenly, raise_evenly
from bigfleet.fedhpa.shares.needed_max import missing_max, needed_max, transferable_max
from bigfleet.fedhpa.shares.records import DecisionPoint, Member, Reason, ReplicaBounds, Share

Levels = dict[str, int]


@dataclass
class Targets:
    """Each chosen cluster's share, and why it changes; `increased`: those that grow for need."""

    shares: dict[str, Share]
    reasons: dict[str, Reason] = field(default_factory=dict)
    increased: set[str] = field(default_factory=set)


def targets(total: ReplicaBounds, chosen: Chosen, at: DecisionPoint, sharing: int) -> Targets:
    """`total` is for all chosen clusters together; `sharing` is the number of clusters in all."""
    found = Targets({})
    min_replicas = _mins(total, chosen, at, found)
    max_replicas = _maxes(total, chosen, at, min_replicas, found, sharing)
    found.shares = {name: Share(min_replicas[name], max_replicas[name]) for name in min_replicas}
    for member in chosen.members:
        if member.share != found.shares[member.name]:
            restored = member.share is None and member.deleted_share is not None
            default = Reason.RESTORED if restored else chosen.new.get(member.name, Reason.EXACT)
            found.reasons.setdefault(member.name, default)
    return found


def _mins(total: ReplicaBounds, chosen: Chosen, at: DecisionPoint, found: Targets) -> Levels:
    floors = {m.name: m.bounds.floor for m in chosen.members}
    caps = {m.name: m.bounds.max_replicas for m in chosen.members}
    levels = {
        m.name: min(max(m.held.min if m.held else 0, m.bounds.floor), m.bounds.max_replicas)
        for m in chosen.members
    }
    if at.config.enabled and at.config.min_usage_percent:
        _move_min(levels, chosen, at, found)
    goal = min(max(total.min, sum(floors.values())), total.max)
    spare = goal - sum(levels.values())
    levels = raise_evenly(levels, caps, spare)
    return lower_evenly(levels, floors, -spare)


def _move_min(levels: Levels, chosen: Chosen, at: DecisionPoint, found: Targets) -> None:
    """Move min from idle clusters at their min to those that run more than theirs."""
    surplus = {m.name: _min_to_spare(m, levels[m.name], at) for m in chosen.members}
    wants = {m.name: _min_in_use(m, levels[m.name], at) for m in chosen.members}
    amount = min(sum(surplus.values()), sum(wants.values()))
    given, taken = in_proportion(amount, surplus), in_proportion(amount, wants)
    for name in levels:
        levels[name] += taken[name] - given[name]
        if given[name]:
            found.reasons[name] = Reason.IDLE
        if taken[name]:
            found.reasons[name] = Reason.BUSY
            found.increased.add(name)


def _min_to_spare(member: Member, level: int, at: DecisionPoint) -> int:
    report, share = member.report, member.share
    if report is None or share is None or report.usage is None or not member.is_stable(at):
        return 0
    idle = report.usage * 100 < at.config.min_usage_percent
    if not idle or not report.current == report.desired == share.min:
        return 0
    if at.now - member.increased_at < at.config.cooldown_seconds:
        return 0
    needed = -int(-report.current * report.usage // 1)
    return max(0, level - max(member.bounds.floor, needed))


def _min_in_use(member: Member, level: int, at: DecisionPoint) -> int:
    report, share = member.report, member.share
    if report is None or share is None or not member.is_stable(at):
        return 0
    return max(0, min(report.desired, share.max) - level) if report.desired > share.min else 0


def _maxes(
    total: ReplicaBounds,
    chosen: Chosen,
    at: DecisionPoint,
    min_replicas: Levels,
    found: Targets,
    sharing: int,
) -> Levels:
    members = chosen.members
    max_replicas = {m.name: max(min_replicas[m.name], m.bounds.max_replicas) for m in members}
    levels = {
        m.name: min(max(m.held.max if m.held else 0, min_replicas[m.name]), max_replicas[m.name])
        for m in members
    }
    levels = _shrunk(levels, chosen, at, min_replicas, sum(levels.values()) - total.max)
    _move_max(levels, chosen, at, total, found, sharing)
    # The rest goes evenly to all; to clusters that cannot schedule more only as a last resort.
    able = {m.name: max(levels[m.name], min(max_replicas[m.name], m.cap(at))) for m in members}
    levels = raise_evenly(levels, able, total.max - sum(levels.values()))
    return raise_evenly(levels, max_replicas, total.max - sum(levels.values()))


def _shrunk(
    levels: Levels, chosen: Chosen, at: DecisionPoint, min_replicas: Levels, amount: int
) -> Levels:
    """Lower by `amount`: first what is not needed, then from the highest."""
    if amount <= 0:
        return levels
    slack = {
        m.name: max(0, levels[m.name] - needed_max(m, min_replicas[m.name], at))
        for m in chosen.members
    }
    first = in_proportion(min(amount, sum(slack.values())), slack)
    levels = {name: level - first[name] for name, level in levels.items()}
    return lower_evenly(levels, min_replicas, amount - sum(first.values()))


def _move_max(
    levels: Levels,
    chosen: Chosen,
    at: DecisionPoint,
    total: ReplicaBounds,
    found: Targets,
    sharing: int,
) -> None:
    """Move max to clusters at their limit and new ones: first what is unused, then from others."""
    spare = max(0, total.max - sum(levels.values()))
    wants = {
        m.name: _wanted_max(m, levels[m.name], chosen, at, total, sharing) for m in chosen.members
    }
    surplus = {m.name: 0 if wants[m.name] else _max_to_spare(m, levels, at) for m in chosen.members}
    amount = min(sum(wants.values()), spare + sum(surplus.values()))
    given, taken = in_proportion(amount - spare, surplus), in_proportion(amount, wants)
    for member in chosen.members:
        name = member.name
        levels[name] += taken[name] - given[name]
        if given[name]:
            cannot_schedule = member.cannot_schedule(at)
            found.reasons[name] = Reason.NOT_PLACEABLE if cannot_schedule else Reason.NOT_NEEDED
        if taken[name]:
            found.reasons[name] = chosen.new.get(name, Reason.AT_LIMIT)
            if found.reasons[name] is not Reason.SPLIT:  # which is not for its need
                found.increased.add(name)


def _max_to_spare(member: Member, levels: Levels, at: DecisionPoint) -> int:
    return max(
        0, min(transferable_max(member, at), levels[member.name] - needed_max(member, 1, at))
    )


def _wanted_max(
    member: Member,
    level: int,
    chosen: Chosen,
    at: DecisionPoint,
    total: ReplicaBounds,
    sharing: int,
) -> int:
    """A cluster that was just opened takes all there is; one that joins takes an equal part."""
    why = chosen.new.get(member.name)
    if why is None:
        return missing_max(member, level, at)
    part = total.max if why is Reason.OPENED else total.max // sharing
    return max(0, min(part, member.cap(at)) - level)
