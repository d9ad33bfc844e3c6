"""What the user is told: the status of a federated HPA. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from bigfleet.federation.autoscaler.views import Seat
from bigfleet.federation.objects import (
    Autoscaler,
    AutoscalerStatus,
    ClusterStatus,
    Condition,
    Pending,
)
from bigfleet.federation.selection import named
from bigfleet.federation.shares import At, Plan, Share, Write


@dataclass
class Findings:
    """What one pass found and did; sentences for people, "" where all is well."""

    not_accepted: str = ""
    no_target: str = ""
    failures: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    plan: Plan = field(default_factory=Plan)
    done: list[Write] = field(default_factory=list)


def change(write: Write) -> str:
    """E.g. `min 2, max 5 -> min 2, max 8`."""
    return f"{_words(write.before)} -> {_words(write.after)}"


def _words(share: Share | None) -> str:
    return f"min {share.min}, max {share.max}" if share else "none"


def before_writing(
    autoscaler: Autoscaler, seats: Sequence[Seat], writes: Sequence[Write]
) -> list[ClusterStatus]:
    """The clusters' lines with what is about to be written, for whoever comes after a crash."""
    goals: dict[str, Share] = {w.cluster: w.after or Share(0, 0) for w in writes}
    known = {line.name: line for line in autoscaler.status.clusters}
    for each in seats:
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
    seats: Sequence[Seat], done: Sequence[Write], at: At, now: str
) -> list[ClusterStatus]:
    """One line for each cluster that has a share or had one not long ago."""
    moved = _moves(done)
    lines = [_line(seat, moved.get(seat.member.name), at, now) for seat in seats]
    return [line for line in lines if line.share or line.pending or line.left_at]


def _moves(done: Sequence[Write]) -> dict[str, Write]:
    """All that a pass wrote into a cluster, as one move."""
    moved: dict[str, Write] = {}
    for write in done:
        first = moved.get(write.cluster, write)
        moved[write.cluster] = replace(write, before=first.before)
    return moved


def _line(seat: Seat, write: Write | None, at: At, now: str) -> ClusterStatus:
    member, old = seat.member, seat.line
    share = member.held
    line = ClusterStatus(member.name, state_of(seat, at), last_move=old.last_move)
    if share is not None:
        line.min_replicas, line.max_replicas = share
    if not member.reachable:
        line.pending = old.pending
        line.min_replicas, line.max_replicas = old.share or share or (None, None)
    elif share is None and at.now < member.avoid_until:
        line.left_at = old.left_at
    if report := member.report:
        line.current_replicas, line.desired_replicas = report.current, report.desired
        line.placed_replicas = report.placed
    if write is not None:
        line.last_move = {"time": now, "reason": write.reason, "change": change(write)}
        if write.after is None:
            line.left_at = now
    return line


def state_of(seat: Seat, at: At) -> str:
    """One word or two for people."""
    member = seat.member
    if not member.reachable:
        return "Unreachable" if not seat.state.reachable else "WriteUncertain"
    if member.share is None:
        return "NotInUse"
    if not member.selected:
        return "Leaving"
    if member.report is None:
        return "NotScaling"
    if not member.settled(at):
        return "Held"
    if member.blocked(at):
        return "CannotPlace"
    return "AtLimit" if member.at_limit else "Scaling"


def status_of(
    autoscaler: Autoscaler, seats: Sequence[Seat], findings: Findings, at: At, now: str
) -> AutoscalerStatus:
    """The whole status; `now` is the moment as Kubernetes writes it."""
    lines = cluster_lines(seats, findings.done, at, now)
    shares = [line.share for line in lines if line.share]
    known = [line for line in lines if line.current_replicas is not None]
    wanted = _conditions(autoscaler, seats, findings, shares)
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
    """With the last cluster's line gone, too: a merge patch leaves what it does not name."""
    return {"clusters": [], **msgspec.to_builtins(status)}


def conditions(
    before: Sequence[Condition], wanted: Mapping[str, tuple[bool, str, str]], now: str
) -> list[Condition]:
    """Conditions by type from (holds, reason, message); the time changes with the status only."""
    known = {each.type: each for each in before}
    made = []
    for kind, (holds, reason, message) in wanted.items():
        status = "True" if holds else "False"
        old = known.get(kind)
        since = old.last_transition_time if old and old.status == status else now
        made.append(Condition(kind, status, reason, message, since))
    return made


def _conditions(
    autoscaler: Autoscaler, seats: Sequence[Seat], findings: Findings, shares: Sequence[Share]
) -> dict[str, tuple[bool, str, str]]:
    refused, no_target = findings.not_accepted, findings.no_target
    away = [f"{s.member.name} {s.state.why_not}" for s in seats if _is_away(s)]
    members = {s.member.name for s in seats}
    unknown = [name for name in named(autoscaler) if name not in members]
    least, most = sum(s.min for s in shares), sum(s.max for s in shares)
    troubles = [*findings.failures, *findings.refusals, *findings.plan.problems]
    troubles = [refused, *troubles] if refused else troubles
    return {
        "Accepted": (not refused, "NotAccepted" if refused else "Accepted", refused),
        "TargetFound": (not no_target, "NotFound" if no_target else "Found", no_target),
        "ClustersReachable": (
            not away and not unknown,
            "Unreachable" if away else "NoMembers" if unknown else "AllAnswer",
            _absent(away, unknown),
        ),
        "InForce": (
            not troubles and most == autoscaler.spec.max_replicas,
            "NotAsWanted" if troubles or most != autoscaler.spec.max_replicas else "SumsAreExact",
            "; ".join(troubles) or f"the clusters' min sum up to {least}, their max to {most}",
        ),
    }


def _absent(away: Sequence[str], unknown: Sequence[str]) -> str:
    told = [f"they keep their shares: {'; '.join(away)}"] if away else []
    told += [f"no member of the federation is called {', '.join(unknown)}"] if unknown else []
    return "; ".join(told)


def _is_away(seat: Seat) -> bool:
    return not seat.state.reachable and (seat.member.selected or seat.member.held is not None)
