"""One pass: what was seen -> the writes that it calls for, in order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bigfleet.federation.shares.choosing import Chosen, choose
from bigfleet.federation.shares.need import spendable
from bigfleet.federation.shares.order import Exchange, Step, ordered
from bigfleet.federation.shares.records import (
    At,
    Full,
    Member,
    Plan,
    Reason,
    Settings,
    Share,
    Wish,
    Write,
)
from bigfleet.federation.shares.targets import Targets, targets

_LONGEST_WAIT_SECONDS = 86400.0


def rebalance(wish: Wish, members: Sequence[Member], at: At) -> Plan:
    """What to write now. `members` are all clusters that could hold a share or do, by rank.

    Unreachable clusters keep their shares, and these count. Without any selected cluster nothing
    is changed. Equal input gives an equal plan.
    """
    apart = [m for m in members if not m.reachable and m.share]
    rest = _rest_of(wish, apart)
    shares = {m.name: m.share for m in members if m.reachable and m.share}
    if not any(m.selected for m in members):
        return Plan((), shares, ("no cluster is selected: everything is left as it is",))
    chosen = choose(rest, members, at, _free(rest, members, at))
    if not chosen.members:
        sentence = "no selected cluster can be reached and used: everything is left as it is"
        return Plan((), shares, (sentence,), _wake_at(members, at))
    found = targets(rest, chosen, at, len(chosen.members) + len(apart))
    exchange = Exchange(
        wanted=found.shares,
        going={m.name: _while_going(m) for m in members if m.name in chosen.left},
        removable=_removable(wish, chosen, members),
        wish=rest,
    )
    steps = ordered(shares, exchange)
    writes = tuple(_writes(steps, chosen, found, at))
    problems = (*chosen.problems, *_problems(wish, members, found, steps, shares))
    return Plan(writes, found.shares, problems, _wake_at(members, at))


def _rest_of(wish: Wish, apart: Sequence[Member]) -> Wish:
    held = [m.share for m in apart if m.share]
    return Wish(wish.min - sum(s.min for s in held), wish.max - sum(s.max for s in held))


def _free(rest: Wish, members: Sequence[Member], at: At) -> int:
    """The part of max that no cluster has, or that one can give away."""
    held = [m for m in members if m.reachable and m.held]
    unused = max(0, rest.max - sum(m.held.max for m in held if m.held))
    return unused + sum(spendable(m, at) for m in held if m.selected)


def _while_going(member: Member) -> Share:
    """What a cluster keeps until others can do without it: all that runs there."""
    held = member.held or Share(1, 1)
    low = min(held.min, member.bounds.floor)
    return Share(low, held.max if member.report is None else max(low, member.report.desired))


def _removable(wish: Wish, chosen: Chosen, members: Sequence[Member]) -> set[str]:
    """Those that go may do so once enough replicas are ready without them."""
    staying = {m.name for m in chosen.members}
    others = sum(m.ready for m in members if m.name in staying or not m.reachable)
    least = min(wish.min, sum(m.ready for m in members))
    return set(chosen.left) if others >= max(1, least) else _empty(chosen, members)


def _empty(chosen: Chosen, members: Sequence[Member]) -> set[str]:
    return {m.name for m in members if m.name in chosen.left and m.ready == 0}


def _writes(steps: Sequence[Step], chosen: Chosen, found: Targets, at: At) -> Iterator[Write]:
    by_name = {m.name: m for m in chosen.members}
    for name, before, after in steps:
        reason = found.reasons.get(name) or chosen.left.get(name) or Reason.EXACT
        full = None
        member = by_name.get(name)
        if reason is Reason.NOT_PLACEABLE and member is not None:
            full = _shown_full(member, at)
        received = name in found.received and _grew(before, after)
        yield Write(name, before, after, reason.value, received, full)


def _shown_full(member: Member, at: At) -> Full | None:
    """Trying again in vain doubles the wait; else a fleet that is full everywhere never rests."""
    if member.report is None:
        return None
    placed, before, wait = member.report.placed, member.full, at.settings.retry_seconds
    if before is not None and placed <= before.placed:
        if at.now < before.until:
            return Full(placed, before.until, before.wait)
        wait = min(2 * before.wait, _LONGEST_WAIT_SECONDS)
    return Full(placed, at.now + wait, wait)


def _grew(before: Share | None, after: Share | None) -> bool:
    if before is None or after is None:
        return before is None
    return after.min > before.min or after.max > before.max


def _problems(
    wish: Wish,
    members: Sequence[Member],
    found: Targets,
    steps: Sequence[Step],
    present: dict[str, Share],
) -> Iterator[str]:
    apart = [m.share for m in members if not m.reachable and m.share]
    most = sum(s.max for s in (*found.shares.values(), *apart))
    least = sum(s.min for s in (*found.shares.values(), *apart))
    if most < wish.max:
        yield f"{wish.max - most} of maxReplicas can be used by no cluster in use"
    if least < wish.min:
        yield f"{wish.min - least} of minReplicas fit into no cluster"
    if most > wish.max:
        yield "maxReplicas is less than what clusters that cannot be reached or left must keep"
    reached = dict(present)
    for name, _, after in steps:
        if after is None:
            del reached[name]
        else:
            reached[name] = after
    if set(reached) - set(found.shares):
        waiting = ", ".join(sorted(set(reached) - set(found.shares)))
        yield f"{waiting}: is left once enough replicas are ready elsewhere"
    elif reached != found.shares:
        yield "minReplicas and maxReplicas leave too little room between them to move shares"


def _wake_at(members: Sequence[Member], at: At) -> float | None:
    moments = [moment for m in members for moment in _moments(m, at.settings) if moment > at.now]
    return min(moments, default=None)


def _moments(member: Member, settings: Settings) -> Iterator[float]:
    if member.full is not None:
        yield member.full.until
    yield member.avoid_until
    if math.isfinite(member.known_since):
        yield member.known_since + settings.hold_seconds
    if math.isfinite(member.received_at):
        yield member.received_at + settings.cooldown_seconds
    if member.unplaced_since is not None:
        yield member.unplaced_since + settings.patience_seconds
    if member.idle_since is not None:
        yield member.idle_since + settings.close_seconds
