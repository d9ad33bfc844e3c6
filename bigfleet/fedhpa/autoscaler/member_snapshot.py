"""Builds the rules' input from the members' state and the memory of earlier passes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from bigfleet.fedhpa.autoscaler.hpa_report import active_since, hpa_report_of, moment
from bigfleet.fedhpa.members.objects import (
    CAPACITY_LIMIT,
    LAST_INCREASE,
    Hpa,
    NamespacedName,
    WorkloadName,
)
from bigfleet.fedhpa.members.state import MemberState
from bigfleet.fedhpa.objects import Autoscaler, ClusterStatus, ObjectKey
from bigfleet.fedhpa.shares import CapacityLimit, ClusterBounds, Member, RebalanceConfig, Share
from bigfleet.fedhpa.shares.records import NEVER
from bigfleet.fedhpa.shares.timestamps import Timestamps, update_timestamps

# The API server's request timeout, after which an abandoned write can no longer take effect.
PENDING_WRITE_SECONDS = 65.0
# The tolerated clock skew of members; timestamps further ahead are ignored.
_MAX_CLOCK_SKEW_SECONDS = 300.0


@dataclass(frozen=True)
class PendingWrite:
    """A write whose outcome is unknown: the conservative share, and the intended one."""

    share: Share
    after: Share | None
    until: float


@dataclass(frozen=True)
class Rejection:
    """A cluster rejects this HPA; retried at `until`, or when the content changes."""

    message: str
    content: str
    until: float


@dataclass
class ReconcileMemory:
    """What the controller remembers of one autoscaler between passes, by cluster.

    `last_applied` is the last applied content, as returned by the member's API server.
    """

    claimed: ObjectKey | None = None
    last_applied: dict[str, tuple[bytes, bytes, bytes]] = field(default_factory=dict)
    timestamps: dict[str, Timestamps] = field(default_factory=dict)
    pending_writes: dict[str, PendingWrite] = field(default_factory=dict)
    rejections: dict[str, Rejection] = field(default_factory=dict)


@dataclass(frozen=True)
class MemberSnapshot:
    """One cluster as the rules and the status see it; `hpa` is the last known one."""

    state: MemberState
    hpa: Hpa | None
    line: ClusterStatus
    member: Member


def conservative_share(one: Share | None, other: Share | None) -> Share:
    """The share to count for a cluster that has one of two shares."""
    a, b = one or Share(0, 0), other or Share(0, 0)
    return Share(min(a.min, b.min), max(a.max, b.max))


def snapshot(
    autoscaler: Autoscaler,
    state: MemberState,
    bounds: ClusterBounds,
    selected: bool,
    target: WorkloadName,
    memory: ReconcileMemory,
    now: float,
) -> MemberSnapshot:
    """The snapshot of one cluster for one autoscaler; updates `memory`."""
    name = NamespacedName(autoscaler.metadata.namespace, autoscaler.metadata.name)
    hpa = state.hpas.get(name)
    lines = {line.name: line for line in autoscaler.status.clusters}
    line = lines.get(state.name) or ClusterStatus(state.name)
    config = autoscaler.spec.rebalance.config()
    pending_write = _pending_write(memory, state, hpa, now)
    reachable = state.reachable and pending_write is None
    report = None
    if hpa is not None and reachable:
        report = hpa_report_of(hpa, state.unscheduled(target), state.metrics_replicas.get(name))
    share = hpa.share if hpa else None
    before = memory.timestamps.get(state.name, Timestamps())
    timestamps = memory.timestamps[state.name] = update_timestamps(
        before, reachable, share, report, now
    )
    workload = state.workloads.get(target)
    member = Member(
        state.name,
        bounds,
        selected=selected,
        reachable=reachable,
        share=share if reachable else _last_known(state, hpa, line, pending_write),
        deleted_share=_deleted_share(hpa, line) if reachable and selected else None,
        report=report,
        ready=workload.status.ready_replicas if workload and reachable else 0,
    )
    return MemberSnapshot(state, hpa, line, _dated(member, hpa, line, timestamps, config, now))


def _pending_write(
    memory: ReconcileMemory, state: MemberState, hpa: Hpa | None, now: float
) -> PendingWrite | None:
    pending_write = memory.pending_writes.get(state.name)
    if pending_write is None:
        return None
    settled = state.reachable and (hpa.share if hpa else None) == pending_write.after
    if settled or (state.reachable and now >= pending_write.until):
        del memory.pending_writes[state.name]
        return None
    return pending_write


def _last_known(
    state: MemberState, hpa: Hpa | None, line: ClusterStatus, pending_write: PendingWrite | None
) -> Share | None:
    if pending_write is not None:
        return pending_write.share
    known = (hpa.share if hpa else None) if state.ever_listed else line.share
    if line.pending is None:
        return known
    after = Share(line.pending.min_replicas, line.pending.max_replicas)
    counted = conservative_share(known, after)
    return counted if counted.max else None


def _deleted_share(hpa: Hpa | None, line: ClusterStatus) -> Share | None:
    """The share of an HPA that should exist and does not."""
    if hpa is not None or (line.pending is not None and line.pending.max_replicas == 0):
        return None
    return line.share


def _dated(
    member: Member,
    hpa: Hpa | None,
    line: ClusterStatus,
    timestamps: Timestamps,
    config: RebalanceConfig,
    now: float,
) -> Member:
    """`member` with the timestamps for stabilization, cooldown and retries."""
    left_at = _without_skew(moment(line.left_at or ""), now)
    annotations: Mapping[str, str] = hpa.metadata.annotations if hpa else {}
    return replace(
        member,
        known_since=max(
            _without_skew(active_since(hpa), now) if hpa else NEVER, timestamps.returned_at
        ),
        unscheduled_since=timestamps.unscheduled_since,
        idle_since=timestamps.idle_since,
        increased_at=_without_skew(moment(annotations.get(LAST_INCREASE, "")), now),
        capacity_limit=_capacity_limit(annotations.get(CAPACITY_LIMIT, ""), now),
        avoid_until=left_at + config.retry_seconds,
    )


def _without_skew(at: float, now: float) -> float:
    """`at`, or NEVER for a timestamp far ahead, from a wrong clock."""
    return NEVER if at > now + _MAX_CLOCK_SKEW_SECONDS else at


def _capacity_limit(annotation: str, now: float) -> CapacityLimit | None:
    try:
        capacity_limit = msgspec.json.decode(annotation, type=CapacityLimit)
    except msgspec.MsgspecError:
        return None
    return (
        None
        if capacity_limit.until > now + capacity_limit.wait + _MAX_CLOCK_SKEW_SECONDS
        else capacity_limit
    )
