"""Plans the writes of one pass from the observed clusters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bigfleet.fedhpa.shares.cluster_choice import Chosen, choose
from bigfleet.fedhpa.shares.exchange import Exchange, Step, ordered
from bigfleet.fedhpa.shares.needed_max import transferable_max
from bigfleet.fedhpa.shares.records import (
    CapacityLimit,
    DecisionPoint,
    Member,
    Plan,
    Reason,
    RebalanceConfig,
    ReplicaBounds,
    Share,
    Write,
)
from bigfleet.fedhpa.shares.targets import Targets, targets

_LONGEST_WAIT_SECONDS = 86400.0


def rebalance(total: ReplicaBounds, members: Sequence[Member], at: DecisionPoint) -> Plan:
    """The plan for now. `members` are all clusters that have or could have a share, by rank.

    Unreachable clusters keep their shares, which count. Without a selected cluster nothing is
    changed. Deterministic.
    """
    apart = [m for m in members if not m.reachable and m.share]
    rest = _rest_of(total, apart)
    shares = {m.name: m.share for m in members if m.reachable and m.share}
    if not any(m.selected for m in members):
        return Plan((), shares, ("no cluster is selected: nothing is changed",))
    chosen = choose(rest, members, at, _free(rest, members, at))
    if not chosen.members:
        message = "no selected cluster is reachable and usable: nothing is changed"
        return Plan((), shares, (message,), _wake_at(members, at))
    found = targets(rest, chosen, at, len(chosen.members) + len(apart))
    exchange = Exchange(
        wanted=found.shares,
        leaving={m.name: _share_while_leaving(m) for m in members if m.name in chosen.left},
        removable=_removable(total, chosen, members),
        total=rest,
    )
    steps = ordered(shares, exchange)
    writes = tuple(_writes(steps, chosen, found, at))
    problems = (*chosen.problems, *_problems(total, members, found, steps, shares))
    return Plan(writes, found.shares, problems, _wake_at(members, at))


def _rest_of(total: ReplicaBounds, apart: Sequence[Member]) -> ReplicaBounds:
    held = [m.share for m in apart if m.share]
    return ReplicaBounds(total.min - sum(s.min for s in held), total.max - sum(s.max for s in held))


def _free(rest: ReplicaBounds, members: Sequence[Member], at: DecisionPoint) -> int:
    """The part of max that no cluster has, or that one can give up."""
    held = [m for m in members if m.reachable and m.held]
    unused = max(0, rest.max - sum(m.held.max for m in held if m.held))
    return unused + sum(transferable_max(m, at) for m in held if m.selected)


def _share_while_leaving(member: Member) -> Share:
    """What a leaving cluster keeps until others have replaced it: all that runs there."""
    held = member.held or Share(1, 1)
    low = min(held.min, member.bounds.floor)
    return Share(low, held.max if member.report is None else max(low, member.report.desired))


def _removable(total: ReplicaBounds, chosen: Chosen, members: Sequence[Member]) -> set[str]:
    """Leaving clusters can be removed once enough replicas are ready elsewhere."""
    staying = {m.name for m in chosen.members}
    others = sum(m.ready for m in members if m.name in staying or not m.reachable)
    min_replicas = min(total.min, sum(m.ready for m in members))
    return set(chosen.left) if others >= max(1, min_replicas) else _empty(chosen, members)


def _empty(chosen: Chosen, members: Sequence[Member]) -> set[str]:
    return {m.name for m in members if m.name in chosen.left and m.ready == 0}


def _writes(
    steps: Sequence[Step], chosen: Chosen, found: Targets, at: DecisionPoint
) -> Iterator[Write]:
    by_name = {m.name: m for m in chosen.members}
    for name, before, after in steps:
        reason = found.reasons.get(name) or chosen.left.get(name) or Reason.EXACT
        capacity_limit = None
        member = by_name.get(name)
        if reason is Reason.NOT_PLACEABLE and member is not None:
            capacity_limit = _capacity_limit_shown(member, at)
        increased = name in found.increased and _grew(before, after)
        yield Write(name, before, after, reason.value, increased, capacity_limit)


def _capacity_limit_shown(member: Member, at: DecisionPoint) -> CapacityLimit | None:
    """Each failed retry doubles the wait; otherwise a fleet that is full would never settle."""
    if member.report is None:
        return None
    scheduled, before, wait = (
        member.report.scheduled,
        member.capacity_limit,
        at.config.retry_seconds,
    )
    if before is not None and scheduled <= before.scheduled:
        if at.now < before.until:
            return CapacityLimit(scheduled, before.until, before.wait)
        wait = min(2 * before.wait, _LONGEST_WAIT_SECONDS)
    return CapacityLimit(scheduled, at.now + wait, wait)


def _grew(before: Share | None, after: Share | None) -> bool:
    if before is None or after is None:
        return before is None
    return after.min > before.min or after.max > before.max


def _problems(
    total: ReplicaBounds,
    members: Sequence[Member],
    found: Targets,
    steps: Sequence[Step],
    present: dict[str, Share],
) -> Iterator[str]:
    apart = [m.share for m in members if not m.reachable and m.share]
    max_replicas = sum(s.max for s in (*found.shares.values(), *apart))
    min_replicas = sum(s.min for s in (*found.shares.values(), *apart))
    if max_replicas < total.max:
        yield f"{total.max - max_replicas} of maxReplicas cannot be used by the clusters in use"
    if min_replicas < total.min:
        yield f"{total.min - min_replicas} of minReplicas do not fit into any cluster"
    if max_replicas > total.max:
        yield "maxReplicas is less than what unreachable and leaving clusters must keep"
    reached = dict(present)
    for name, _, after in steps:
        if after is None:
            del reached[name]
        else:
            reached[name] = after
    if set(reached) - set(found.shares):
        waiting = ", ".join(sorted(set(reached) - set(found.shares)))
        yield f"{waiting}: removed once enough replicas are ready elsewhere"
    elif reached != found.shares:
        yield "minReplicas and maxReplicas are too close to each other to move shares"


def _wake_at(members: Sequence[Member], at: DecisionPoint) -> float | None:
    deadlines = [when for m in members for when in _deadlines(m, at.config) if when > at.now]
    return min(deadlines, default=None)


def _deadlines(member: Member, config: RebalanceConfig) -> Iterator[float]:
    if member.capacity_limit is not None:
        yield member.capacity_limit.until
    yield member.avoid_until
    if math.isfinite(member.known_since):
        yield member.known_since + config.stabilization_seconds
    if math.isfinite(member.increased_at):
        yield member.increased_at + config.cooldown_seconds
    if member.unscheduled_since is not None:
        yield member.unscheduled_since + config.scheduling_timeout_seconds
    if member.idle_since is not None:
        yield member.idle_since + config.idle_timeout_seconds
