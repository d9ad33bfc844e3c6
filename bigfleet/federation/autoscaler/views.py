"""From what is known of the members and of earlier passes to the rules' input. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from bigfleet.federation.autoscaler.reading import active_since, moment, report_of
from bigfleet.federation.members.objects import (
    FULL,
    RECEIVED_AT,
    Hpa,
    Name,
    WorkloadName,
)
from bigfleet.federation.members.state import MemberState
from bigfleet.federation.objects import Autoscaler, ClusterStatus, Key
from bigfleet.federation.shares import Bounds, Full, Member, Settings, Share
from bigfleet.federation.shares.memory import Stamps, noted
from bigfleet.federation.shares.records import NEVER

# Beyond its deadline the API server does not carry out a request whose client has given up.
DOUBT_SECONDS = 65.0
# Members' clocks may be off by less than this; what is further ahead is not believed.
_CLOCKS_DIFFER_SECONDS = 300.0


@dataclass(frozen=True)
class Doubt:
    """A write whose outcome is not known: the cautious share, and what it was to become."""

    share: Share
    after: Share | None
    until: float


@dataclass(frozen=True)
class Refusal:
    """A cluster does not take this HPA; it is asked again at `until`, or for another content."""

    sentence: str
    content: str
    until: float


@dataclass
class Memory:
    """What the controller remembers of one autoscaler between passes, by cluster.

    `given` is what was last applied, as the member's API server puts it.
    """

    claimed: Key | None = None
    given: dict[str, tuple[bytes, bytes, bytes]] = field(default_factory=dict)
    stamps: dict[str, Stamps] = field(default_factory=dict)
    doubts: dict[str, Doubt] = field(default_factory=dict)
    refusals: dict[str, Refusal] = field(default_factory=dict)


@dataclass(frozen=True)
class Seat:
    """One cluster as the rules and the status see it; `hpa` is the last that was seen."""

    state: MemberState
    hpa: Hpa | None
    line: ClusterStatus
    member: Member


def cautious(one: Share | None, other: Share | None) -> Share:
    """What to count for a cluster that has one of two shares, nobody knows which."""
    a, b = one or Share(0, 0), other or Share(0, 0)
    return Share(min(a.min, b.min), max(a.max, b.max))


def seat(
    autoscaler: Autoscaler,
    state: MemberState,
    bounds: Bounds,
    selected: bool,
    target: WorkloadName,
    memory: Memory,
    now: float,
) -> Seat:
    """What is known of one cluster for one autoscaler; notes in `memory` what it sees."""
    name = Name(autoscaler.metadata.namespace, autoscaler.metadata.name)
    hpa = state.hpas.get(name)
    lines = {line.name: line for line in autoscaler.status.clusters}
    line = lines.get(state.name) or ClusterStatus(state.name)
    settings = autoscaler.spec.rebalance.settings()
    doubt = _doubt(memory, state, hpa, now)
    reachable = state.reachable and doubt is None
    report = None
    if hpa is not None and reachable:
        report = report_of(hpa, state.unplaced(target), state.measured.get(name))
    share = hpa.share if hpa else None
    before = memory.stamps.get(state.name, Stamps())
    stamps = memory.stamps[state.name] = noted(before, reachable, share, report, now)
    workload = state.workloads.get(target)
    member = Member(
        state.name,
        bounds,
        selected=selected,
        reachable=reachable,
        share=share if reachable else _last_known(state, hpa, line, doubt),
        remembered=_remembered(hpa, line) if reachable and selected else None,
        report=report,
        ready=workload.status.ready_replicas if workload and reachable else 0,
    )
    return Seat(state, hpa, line, _dated(member, hpa, line, stamps, settings, now))


def _doubt(memory: Memory, state: MemberState, hpa: Hpa | None, now: float) -> Doubt | None:
    doubt = memory.doubts.get(state.name)
    if doubt is None:
        return None
    settled = state.reachable and (hpa.share if hpa else None) == doubt.after
    if settled or (state.reachable and now >= doubt.until):
        del memory.doubts[state.name]
        return None
    return doubt


def _last_known(
    state: MemberState, hpa: Hpa | None, line: ClusterStatus, doubt: Doubt | None
) -> Share | None:
    if doubt is not None:
        return doubt.share
    known = (hpa.share if hpa else None) if state.was_seen else line.share
    if line.pending is None:
        return known
    after = Share(line.pending.min_replicas, line.pending.max_replicas)
    counted = cautious(known, after)
    return counted if counted.max else None


def _remembered(hpa: Hpa | None, line: ClusterStatus) -> Share | None:
    """The share of an HPA that should be there and is not."""
    if hpa is not None or (line.pending is not None and line.pending.max_replicas == 0):
        return None
    return line.share


def _dated(
    member: Member,
    hpa: Hpa | None,
    line: ClusterStatus,
    stamps: Stamps,
    settings: Settings,
    now: float,
) -> Member:
    """With the moments by which the rules hold still, wait and try again."""
    left_at = _believed(moment(line.left_at or ""), now)
    marks: Mapping[str, str] = hpa.metadata.annotations if hpa else {}
    return replace(
        member,
        known_since=max(_believed(active_since(hpa), now) if hpa else NEVER, stamps.returned_at),
        unplaced_since=stamps.unplaced_since,
        idle_since=stamps.idle_since,
        received_at=_believed(moment(marks.get(RECEIVED_AT, "")), now),
        full=_full(marks.get(FULL, ""), now),
        avoid_until=left_at + settings.retry_seconds,
    )


def _believed(at: float, now: float) -> float:
    """A moment far ahead is from a clock that was wrong; nobody waits for it."""
    return NEVER if at > now + _CLOCKS_DIFFER_SECONDS else at


def _full(mark: str, now: float) -> Full | None:
    try:
        full = msgspec.json.decode(mark, type=Full)
    except msgspec.MsgspecError:
        return None
    return None if full.until > now + full.wait + _CLOCKS_DIFFER_SECONDS else full
