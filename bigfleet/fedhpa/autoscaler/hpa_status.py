"""The status of a federated HPA. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from bigfleet.fedhpa.autoscaler.member_snapshot import MemberSnapshot
from bigfleet.fedhpa.objects import (
    Autoscaler,
    AutoscalerStatus,
    ClusterStatus,
    Condition,
    Pending,
)
from bigfleet.fedhpa.selection import named
from bigfleet.fedhpa.shares import DecisionPoint, Plan, Share, Write


@dataclass
class ReconcileResult:
    """The result of one pass; messages for users, "" where there is no problem."""

    not_accepted: str = ""
    no_target: str = ""
    failures: list[str] = field(default_factory=list)
    rejections: list[str] = field(default_factory=list)
    plan: Plan = field(default_factory=Plan)
    done: list[Write] = field(default_factory=list)


def change(write: Write) -> str:
    """E.g. `min 2, max 5 -> min 2, max 8`."""
    return f"{_text(write.before)} -> {_text(write.after)}"


def _text(share: Share | None) -> str:
    return f"min {share.min}, max {share.max}" if share else "none"


def before_writing(
    autoscaler: Autoscaler, snapshots: Sequence[MemberSnapshot], writes: Sequence[Write]
) -> list[ClusterStatus]:
    """The clusters' lines with the pending writes, to recover from a crash."""
    goals: dict[str, Share] = {w.cluster: w.after or Share(0, 0) for w in writes}
    known = {line.name: line for line in autoscaler.status.clusters}
    for each in snapshots:
        name = each.member.name
        line = copy(known.get(name) or ClusterStatus(name))
        if each.member.reachable and each.member.share:
            share = each.member.share
            line.min_replicas, line.max_replicas = share
        if goal := goals.get(name):
            line.pending = Pending(*goal)
        known[name] = line
    return list(known.values())


def cluster_lines(
    snapshots: Sequence[MemberSnapshot], done: Sequence[Write], at: DecisionPoint, now: str
) -> list[ClusterStatus]:
    """One line for each cluster that has a share, a pending write, or left recently."""
    moved = _moves(done)
    lines = [_line(snapshot, moved.get(snapshot.member.name), at, now) for snapshot in snapshots]
    return [line for line in lines if line.share or line.pending or line.left_at]


def _moves(done: Sequence[Write]) -> dict[str, Write]:
    """All writes of a pass to a cluster, merged into one."""
    moved: dict[str, Write] = {}
    for write in done:
        first = moved.get(write.cluster, write)
        moved[write.cluster] = replace(write, before=first.before)
    return moved


def _line(
    snapshot: MemberSnapshot, write: Write | None, at: DecisionPoint, now: str
) -> ClusterStatus:
    member, old = snapshot.member, snapshot.line
    share = member.held
    line = ClusterStatus(member.name, state_of(snapshot, at), last_move=old.last_move)
    if share is not None:
        line.min_replicas, line.max_replicas = share
    if not member.reachable:
        line.pending = old.pending
        line.min_replicas, line.max_replicas = old.share or share or (None, None)
    elif share is None and at.now < member.avoid_until:
        line.left_at = old.left_at
    if report := member.report:
        line.current_replicas, line.desired_replicas = report.current, report.desired
        line.scheduled_replicas = report.scheduled
    if write is not None:
        line.last_move = {"time": now, "reason": write.reason, "change": change(write)}
        if write.after is None:
            line.left_at = now
    return line


def state_of(snapshot: MemberSnapshot, at: DecisionPoint) -> str:
    """The state of one cluster."""
    member = snapshot.member
    if not member.reachable:
        return "Unreachable" if not snapshot.state.reachable else "WritePending"
    if member.share is None:
        return "NotInUse"
    if not member.selected:
        return "Leaving"
    if member.report is None:
        return "NotScaling"
    if not member.is_stable(at):
        return "Stabilizing"
    if member.cannot_schedule(at):
        return "CannotSchedule"
    return "AtLimit" if member.at_limit else "Scaling"


def status_of(
    autoscaler: Autoscaler,
    snapshots: Sequence[MemberSnapshot],
    result: ReconcileResult,
    at: DecisionPoint,
    now: str,
) -> AutoscalerStatus:
    """The status; `now` is in RFC 3339."""
    lines = cluster_lines(snapshots, result.done, at, now)
    shares = [line.share for line in lines if line.share]
    known = [line for line in lines if line.current_replicas is not None]
    wanted = _conditions(autoscaler, snapshots, result, shares)
    return AutoscalerStatus(
        observed_generation=autoscaler.metadata.generation,
        current_replicas=sum(line.current_replicas or 0 for line in known),
        desired_replicas=sum(line.desired_replicas or 0 for line in known),
        min_replicas=sum(share.min for share in shares),
        max_replicas=sum(share.max for share in shares),
        clusters_in_use=len(shares),
        conditions=conditions(autoscaler.status.conditions, wanted, now),
        clusters=lines,
    )


def whole(status: AutoscalerStatus) -> dict[str, Any]:
    """With an explicit empty list of clusters: a merge patch does not change omitted fields."""
    return {"clusters": [], **msgspec.to_builtins(status)}


def conditions(
    before: Sequence[Condition], wanted: Mapping[str, tuple[bool, str, str]], now: str
) -> list[Condition]:
    """Conditions by type from (holds, reason, message); lastTransitionTime follows the status."""
    known = {each.type: each for each in before}
    made = []
    for kind, (holds, reason, message) in wanted.items():
        status = "True" if holds else "False"
        old = known.get(kind)
        since = old.last_transition_time if old and old.status == status else now
        made.append(Condition(kind, status, reason, message, since))
    return made


def _conditions(
    autoscaler: Autoscaler,
    snapshots: Sequence[MemberSnapshot],
    result: ReconcileResult,
    shares: Sequence[Share],
) -> dict[str, tuple[bool, str, str]]:
    not_accepted, no_target = result.not_accepted, result.no_target
    away = [f"{s.member.name} {s.state.unreachable_reason}" for s in snapshots if _is_away(s)]
    members = {s.member.name for s in snapshots}
    unknown = [name for name in named(autoscaler) if name not in members]
    least, most = sum(s.min for s in shares), sum(s.max for s in shares)
    problems = [*result.failures, *result.rejections, *result.plan.problems]
    problems = [not_accepted, *problems] if not_accepted else problems
    return {
        "Accepted": (
            not not_accepted,
            "NotAccepted" if not_accepted else "Accepted",
            not_accepted,
        ),
        "TargetFound": (not no_target, "NotFound" if no_target else "Found", no_target),
        "ClustersReachable": (
            not away and not unknown,
            "Unreachable" if away else "UnknownClusters" if unknown else "AllReachable",
            _absent(away, unknown),
        ),
        "BoundsApplied": (
            not problems and most == autoscaler.spec.max_replicas,
            "BoundsMismatch" if problems or most != autoscaler.spec.max_replicas else "BoundsMatch",
            "; ".join(problems) or f"the clusters' min total {least}, their max {most}",
        ),
    }


def _absent(away: Sequence[str], unknown: Sequence[str]) -> str:
    messages = [f"keeping their shares: {'; '.join(away)}"] if away else []
    messages += [f"not members of the federation: {', '.join(unknown)}"] if unknown else []
    return "; ".join(messages)


def _is_away(snapshot: MemberSnapshot) -> bool:
    return not snapshot.state.reachable and (
        snapshot.member.selected or snapshot.member.held is not None
    )
