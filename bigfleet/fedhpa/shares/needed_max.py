"""How much max a cluster needs, lacks, or can give up."""

from __future__ import annotations

from bigfleet.fedhpa.shares.records import DecisionPoint, Member


def needed_max(member: Member, min_replicas: int, at: DecisionPoint) -> int:
    """The max that a cluster needs; what it has while that is unknown."""
    report = member.report
    if report is None or not member.is_stable(at):
        return max(min_replicas, member.held.max if member.held else 0)
    if member.cannot_schedule(at):
        return max(min_replicas, report.scheduled)
    wanted = max(report.desired, report.current, report.wanted)
    wanted += max(1, -(-wanted * at.config.headroom_percent // 100))
    return max(min_replicas, min(wanted, member.cap(at)))


def transferable_max(member: Member, at: DecisionPoint) -> int:
    """The part of its max that a cluster can give up now."""
    if member.share is None or not at.config.enabled or not member.is_stable(at):
        return 0
    cooling = at.now - member.increased_at < at.config.cooldown_seconds
    if cooling and not member.cannot_schedule(at):
        return 0
    return max(0, member.share.max - needed_max(member, member.share.min, at))


def missing_max(member: Member, level: int, at: DecisionPoint) -> int:
    """The max that a cluster at its limit lacks and could use."""
    if not at.config.enabled or not member.at_limit or not member.is_stable(at):
        return 0
    return max(0, min(needed_max(member, level, at), member.cap(at)) - level)
