"""From what is known of the members and of earlier passes to the rules' input. Pure."""

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

# Beyond its deadline the API server does not carry out a request whose client has given up.
PENDING_WRITE_SECONDS = 65.0
# Members' clocks may be off by less than this; what is further ahead is not believed.
_CLOCKS_DIFFER_SECONDS = 300.0


@dataclass(frozen=True)
class PendingWrite:
    """A write whose outcome is not known: the cautious share, and what it was to become."""

    share: Share
    after: Share | None
    until: float


@dataclass(frozen=True)
class Rejection:
    """A cluster does not take this HPA; it is asked again at `until`, or for another content."""

    sentence: str
    content: str
    until: float


@dataclass
class ReconcileMemory:
    """What the controller remembers of one autoscaler between passes, by cluster.

    `last_applied` is what was last applied, as the member's API server puts it.
    """

    claimed: ObjectKey | None = None
    last_applied: dict[str, tuple[bytes, bytes, bytes]] = field(default_factory=dict)
    timestamps: dict[str, Timestamps] = field(default_factory=dict)
    pending_writes: dict[str, PendingWrite] = field(default_factory=dict)
    rejections: dict[str, Rejection] = field(default_factory=dict)


@dataclass(frozen=True)
class MemberSnapshot:
    """One cluster as the rules and the status see it; `hpa` is the last that was seen."""

    state: MemberState
    hpa: Hpa | None
    line: ClusterStatus
    member: Member


def conservative_share(one: Share | None, other: Share | None) -> Share:
    """What to count for a cluster that has one of two shares, nobody knows which."""
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
    """What is known of one cluster for one autoscaler; notes in `memory` what it sees."""
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
    """The share of an HPA that should be there and is not."""
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
    """With the moments by which the rules hold still, wait and try again."""
    left_at = _believed(moment(line.left_at or ""), now)
    annotations: Mapping[str, str] = hpa.metadata.annotations if hpa else {}
    return replace(
        member,
        known_since=max(
            _believed(active_since(hpa), now) if hpa else NEVER, timestamps.returned_at
        ),
        unscheduled_since=timestamps.unscheduled_since,
        idle_since=timestamps.idle_since,
        increased_at=_believed(moment(annotations.get(LAST_INCREASE, "")), now),
        capacity_limit=_capacity_limit(annotations.get(CAPACITY_LIMIT, ""), now),
        avoid_until=left_at + config.retry_seconds,
    )


def _believed(at: float, now: float) -> float:
    """A moment far ahead is from a clock that was wrong; nobody waits for it."""
    return NEVER if at > now + _CLOCKS_DIFFER_SECONDS else at


def _capacity_limit(mark: str, now: float) -> CapacityLimit | None:
    try:
        capacity_limit = msgspec.json.decode(mark, type=CapacityLimit)
    except msgspec.MsgspecError:
        return None
    return (
        None
        if capacity_limit.until > now + capacity_limit.wait + _CLOCKS_DIFFER_SECONDS
        else capacity_limit
    )
