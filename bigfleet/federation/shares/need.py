"""How much of its max a cluster needs, lacks, or can spare."""

from __future__ import annotations

from bigfleet.federation.shares.records import At, Member


def need(member: Member, least: int, at: At) -> int:
    """The max below which a cluster would miss something; what it has, while nothing is known."""
    report = member.report
    if report is None or not member.settled(at):
        return max(least, member.held.max if member.held else 0)
    if member.blocked(at):
        return max(least, report.placed)
    wanted = max(report.desired, report.current, report.wanted)
    wanted += max(1, -(-wanted * at.settings.headroom_percent // 100))
    return max(least, min(wanted, member.cap(at)))


def spendable(member: Member, at: At) -> int:
    """The part of its max that a cluster can give away now."""
    if member.share is None or not at.settings.dynamic or not member.settled(at):
        return 0
    cooling = at.now - member.received_at < at.settings.cooldown_seconds
    if cooling and not member.blocked(at):
        return 0
    return max(0, member.share.max - need(member, member.share.min, at))


def lacking(member: Member, level: int, at: At) -> int:
    """What a cluster at its limit lacks, as far as it could make use of it."""
    if not at.settings.dynamic or not member.at_limit or not member.settled(at):
        return 0
    return max(0, min(need(member, level, at), member.cap(at)) - level)
