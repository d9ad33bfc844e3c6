"""The shares that the chosen clusters shall have, from those they have now."""

from __future__ import annotations

from dataclasses import dataclass, field

from bigfleet.federation.shares.choosing import Chosen
from bigfleet.federation.shares.filling import in_proportion, lower_evenly, raise_evenly
from bigfleet.federation.shares.need import lacking, need, spendable
from bigfleet.federation.shares.records import At, Member, Reason, Share, Wish

Levels = dict[str, int]


@dataclass
class Targets:
    """Each chosen cluster's share, and why it changes; `received` those given for their need."""

    shares: dict[str, Share]
    reasons: dict[str, Reason] = field(default_factory=dict)
    received: set[str] = field(default_factory=set)


def targets(wish: Wish, chosen: Chosen, at: At, sharing: int) -> Targets:
    """`wish` is what the chosen clusters have together; `sharing` how many clusters there are."""
    found = Targets({})
    least = _mins(wish, chosen, at, found)
    most = _maxes(wish, chosen, at, least, found, sharing)
    found.shares = {name: Share(least[name], most[name]) for name in least}
    for member in chosen.members:
        if member.share != found.shares[member.name]:
            restored = member.share is None and member.remembered is not None
            default = Reason.RESTORED if restored else chosen.new.get(member.name, Reason.EXACT)
            found.reasons.setdefault(member.name, default)
    return found


def _mins(wish: Wish, chosen: Chosen, at: At, found: Targets) -> Levels:
    floors = {m.name: m.bounds.floor for m in chosen.members}
    caps = {m.name: m.bounds.most for m in chosen.members}
    levels = {
        m.name: min(max(m.held.min if m.held else 0, m.bounds.floor), m.bounds.most)
        for m in chosen.members
    }
    if at.settings.dynamic and at.settings.min_usage_percent:
        _move_min(levels, chosen, at, found)
    goal = min(max(wish.min, sum(floors.values())), wish.max)
    spare = goal - sum(levels.values())
    levels = raise_evenly(levels, caps, spare)
    return lower_evenly(levels, floors, -spare)


def _move_min(levels: Levels, chosen: Chosen, at: At, found: Targets) -> None:
    """From idle clusters at their min to those that run more than theirs anyway."""
    gifts = {m.name: _min_to_spare(m, levels[m.name], at) for m in chosen.members}
    wants = {m.name: _min_in_use(m, levels[m.name], at) for m in chosen.members}
    amount = min(sum(gifts.values()), sum(wants.values()))
    given, taken = in_proportion(amount, gifts), in_proportion(amount, wants)
    for name in levels:
        levels[name] += taken[name] - given[name]
        if given[name]:
            found.reasons[name] = Reason.IDLE
        if taken[name]:
            found.reasons[name] = Reason.BUSY
            found.received.add(name)


def _min_to_spare(member: Member, level: int, at: At) -> int:
    report, share = member.report, member.share
    if report is None or share is None or report.usage is None or not member.settled(at):
        return 0
    idle = report.usage * 100 < at.settings.min_usage_percent
    if not idle or not report.current == report.desired == share.min:
        return 0
    if at.now - member.received_at < at.settings.cooldown_seconds:
        return 0
    needed = -int(-report.current * report.usage // 1)
    return max(0, level - max(member.bounds.floor, needed))


def _min_in_use(member: Member, level: int, at: At) -> int:
    report, share = member.report, member.share
    if report is None or share is None or not member.settled(at):
        return 0
    return max(0, min(report.desired, share.max) - level) if report.desired > share.min else 0


def _maxes(
    wish: Wish, chosen: Chosen, at: At, least: Levels, found: Targets, sharing: int
) -> Levels:
    members = chosen.members
    most = {m.name: max(least[m.name], m.bounds.most) for m in members}
    levels = {
        m.name: min(max(m.held.max if m.held else 0, least[m.name]), most[m.name]) for m in members
    }
    levels = _shrunk(levels, chosen, at, least, sum(levels.values()) - wish.max)
    _move_max(levels, chosen, at, wish, found, sharing)
    # What is left goes evenly to all; to those that can place no more only as the last resort.
    able = {m.name: max(levels[m.name], min(most[m.name], m.cap(at))) for m in members}
    levels = raise_evenly(levels, able, wish.max - sum(levels.values()))
    return raise_evenly(levels, most, wish.max - sum(levels.values()))


def _shrunk(levels: Levels, chosen: Chosen, at: At, least: Levels, amount: int) -> Levels:
    """Lower by `amount`: first what nobody needs, then from the highest."""
    if amount <= 0:
        return levels
    slack = {m.name: max(0, levels[m.name] - need(m, least[m.name], at)) for m in chosen.members}
    first = in_proportion(min(amount, sum(slack.values())), slack)
    levels = {name: level - first[name] for name, level in levels.items()}
    return lower_evenly(levels, least, amount - sum(first.values()))


def _move_max(
    levels: Levels, chosen: Chosen, at: At, wish: Wish, found: Targets, sharing: int
) -> None:
    """To clusters at their limit and new ones: what is unused first, then what others can spare."""
    spare = max(0, wish.max - sum(levels.values()))
    wants = {
        m.name: _wanted_max(m, levels[m.name], chosen, at, wish, sharing) for m in chosen.members
    }
    gifts = {m.name: 0 if wants[m.name] else _max_to_spare(m, levels, at) for m in chosen.members}
    amount = min(sum(wants.values()), spare + sum(gifts.values()))
    given, taken = in_proportion(amount - spare, gifts), in_proportion(amount, wants)
    for member in chosen.members:
        name = member.name
        levels[name] += taken[name] - given[name]
        if given[name]:
            blocked = member.blocked(at)
            found.reasons[name] = Reason.NOT_PLACEABLE if blocked else Reason.NOT_NEEDED
        if taken[name]:
            found.reasons[name] = chosen.new.get(name, Reason.AT_LIMIT)
            if found.reasons[name] is not Reason.SPLIT:  # by which nobody was served
                found.received.add(name)


def _max_to_spare(member: Member, levels: Levels, at: At) -> int:
    return max(0, min(spendable(member, at), levels[member.name] - need(member, 1, at)))


def _wanted_max(
    member: Member, level: int, chosen: Chosen, at: At, wish: Wish, sharing: int
) -> int:
    """One that was just opened takes all that is to be had; one that joins, an equal part."""
    why = chosen.new.get(member.name)
    if why is None:
        return lacking(member, level, at)
    part = wish.max if why is Reason.OPENED else wish.max // sharing
    return max(0, min(part, member.cap(at)) - level)
