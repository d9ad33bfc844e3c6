"""Which clusters have a share.

The base: every cluster with a preferred min of 1 or more, then, as far as the user's min covers
their smallest shares, those in use and those where the target already runs, in the user's order.

One more is opened when a cluster in use cannot grow or cannot schedule its replicas, and no other
in use has capacity. It is closed again once it was idle for long and the others have capacity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bigfleet.fedhpa.shares.records import DecisionPoint, Member, Reason, ReplicaBounds


@dataclass(frozen=True)
class Chosen:
    """The clusters with a share, by rank; why some are new, and why others leave."""

    members: tuple[Member, ...]
    new: Mapping[str, Reason]
    left: Mapping[str, Reason]
    problems: tuple[str, ...]


def choose(total: ReplicaBounds, members: Sequence[Member], at: DecisionPoint, free: int) -> Chosen:
    """`total` is for the reachable clusters, `free` the max that none of them needs."""
    able = [
        m for m in members if m.reachable and m.selected and m.bounds.max_replicas >= m.bounds.floor
    ]
    joining_late = any(m.held for m in members)
    # An unreachable cluster may be counted with too much; no other has to leave for that.
    whole = all(m.reachable or m.held is None for m in members)
    base, problems = _base(total, able, free, joining_late, whole)
    kept = [m for m in able if m.held or m.name in base]
    kept = _within_max(total, kept, base) if whole else kept
    opening = closing = None
    if at.config.enabled and all(m.held for m in kept):
        closing = _closing(total, kept, base, at) if whole else None
        opening = _opening(total, kept, able, at, free) if closing is None else None
    stays = tuple(m for m in able if (m in kept and m is not closing) or m is opening)
    new = {m.name: Reason.JOINED if joining_late else Reason.SPLIT for m in stays if m.held is None}
    if opening:
        new[opening.name] = Reason.OPENED
    left = {m.name: Reason.LEFT for m in members if m.reachable and m.share and m not in stays}
    if closing:
        left[closing.name] = Reason.CLOSED
    return Chosen(stays, new, left, tuple(problems))


def _base(
    total: ReplicaBounds, able: Sequence[Member], free: int, joining_late: bool, whole: bool
) -> tuple[set[str], list[str]]:
    """The base, and which preferences cannot be met."""
    base: set[str] = set()
    problems: list[str] = []
    spent = 0
    for member in able:
        if member.bounds.min_replicas < 1:
            continue
        if spent + member.bounds.min_replicas > total.max and (whole or member.held is None):
            min_replicas = member.bounds.min_replicas
            problems.append(
                f"cluster {member.name}: preferred minReplicas {min_replicas} exceeds the "
                f"remaining maxReplicas, {total.max - spent}"
            )
            continue
        spent += member.bounds.min_replicas
        base.add(member.name)
    others = [m for m in able if m.bounds.min_replicas < 1]
    return base | _joining(total, others, spent, free, joining_late), problems


def _joining(
    total: ReplicaBounds, others: list[Member], spent: int, free: int, joining_late: bool
) -> set[str]:
    """The clusters to which the user's min gives a replica. Late ones also need free max."""
    joining: set[str] = set()
    for member in sorted(others, key=lambda m: (m.held is None, m.ready == 0)):
        needs_free_max = member.held is None and joining_late
        first = spent == 0 and not needs_free_max
        if first or (spent + 1 <= total.min and (not needs_free_max or free >= 1)):
            joining.add(member.name)
            spent += 1
            free -= needs_free_max
    return joining


def _within_max(total: ReplicaBounds, in_use: list[Member], base: set[str]) -> list[Member]:
    """Without those that a lowered max no longer covers, the last first."""
    kept = list(in_use)
    for member in reversed(in_use):
        if sum(m.bounds.floor for m in kept) <= total.max:
            break
        if member.name not in base:
            kept.remove(member)
    return kept


def _pressed(member: Member, at: DecisionPoint) -> bool:
    """Whether the cluster would run more, but cannot schedule it or is limited by max."""
    if not member.is_stable(at) or member.report is None:
        return False
    more = member.report.wanted > member.report.desired
    return member.cannot_schedule(at) or (member.at_limit and more)


def _growing(member: Member, at: DecisionPoint) -> bool:
    """Whether it needs more, just got more, or waits for nodes."""
    given = at.now - member.increased_at < at.config.cooldown_seconds
    return given or member.unscheduled_since is not None or _pressed(member, at)


def _opening(
    total: ReplicaBounds,
    kept: Sequence[Member],
    able: Sequence[Member],
    at: DecisionPoint,
    free: int,
) -> Member | None:
    if not any(_pressed(m, at) for m in kept) or any(
        _has_capacity(m, at, total, free) for m in kept
    ):
        return None
    closed = (m for m in able if m not in kept and m.avoid_until <= at.now)
    return next((m for m in closed if m.bounds.floor <= free), None)


def _has_capacity(member: Member, at: DecisionPoint, total: ReplicaBounds, free: int) -> bool:
    """Whether it can run more than it does: within its max, or with free max."""
    share, report = member.share, member.report
    if share is None or report is None or not member.is_stable(at):
        return True
    if member.cannot_schedule(at):
        return False
    cap = min(member.cap(at), total.max)
    return report.desired < min(share.max, cap) or (free > 0 and share.max < cap)


def _closing(
    total: ReplicaBounds, kept: Sequence[Member], base: set[str], at: DecisionPoint
) -> Member | None:
    for member in reversed(kept):
        others = [m for m in kept if m is not member]
        if member.name in base or not member.is_stable(at) or not others:
            continue
        schedules_nothing = member.cannot_schedule(at) and member.usable(at) == 0
        if schedules_nothing or (_idle(member, at) and _dispensable(member, others, at, total)):
            return member
    return None


def _idle(member: Member, at: DecisionPoint) -> bool:
    since = member.idle_since
    return since is not None and at.now - since >= at.config.idle_timeout_seconds


def _dispensable(
    member: Member, others: Sequence[Member], at: DecisionPoint, total: ReplicaBounds
) -> bool:
    """Whether the others could run all that this one runs, and one more."""
    if any(_growing(m, at) or not m.is_stable(at) for m in others):
        return False
    capacity = sum(m.cap(at) for m in others)
    needed = sum(m.report.desired for m in (*others, member) if m.report)
    return min(capacity, total.max) > needed
