"""The summary's federation section."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from loaddriver.fedhpa.load_schedule import PhaseWindow
from loaddriver.fedhpa.record import FEDERATION_UP, RECONNECTED, FederationRecord
from loaddriver.judge.federation import series
from loaddriver.judge.federation.scaling_response import LoadChange, load_changes, replica_seconds
from loaddriver.judge.federation.series import ClusterSeries
from loaddriver.judge.federation.sums import Breaches, breaches, changes_by_federation, shares_at
from loaddriver.record.hpas import FederatedStatus, HpaWrite

_UNREACHABLE = "Unreachable"
_MINUTE = 60_000_000


class _Section(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The base of the section's parts."""


class ScalingResponse(_Section, frozen=True, kw_only=True):
    """The time of `changes` of load until enough pods ran; `never_reached` counts the others."""

    changes: int
    never_reached: int
    median_seconds: float | None
    max_seconds: float | None


class Phase(_Section, frozen=True, kw_only=True):
    """A phase of the load schedule, in seconds since its start.

    `scalings` counts changes of desired replicas by the clusters' HPAs, `moves` changes of shares
    by the federation. `sum_min` and `sum_max` are those at the end of the phase.
    """

    begin_seconds: float
    end_seconds: float
    federation_down: bool
    partitioned: str
    up: ScalingResponse
    down: ScalingResponse
    under_replica_seconds: float
    over_replica_seconds: float
    scalings: int
    moves: int
    sum_min: int
    sum_max: int
    sum_min_off: int
    sum_max_off: int


class Healing(_Section, frozen=True, kw_only=True):
    """The end of a partition: the time from reachability to the federation's first sync with the
    cluster, and the deviation of the sums then.
    """

    cluster: str
    seconds: float | None
    sums_off: int | None


class FederationSection(_Section, frozen=True, kw_only=True):
    """A federated HPA: `max_breaches` and `min_breaches` of the `observed_writes` violated the
    user's sums. `under_share` and `over_share` are shares of the replica-seconds that the
    load needed. `recovered_seconds` is from the recovery of the federation's API server to the
    first sync, null without an outage or a sync.
    """

    min_replicas: int
    max_replicas: int
    on_premise: str
    on_premise_places: int
    on_premise_most_ready: int
    elsewhere_most_ready: int
    observed_writes: int
    max_breaches: int
    min_breaches: int
    worst_sum_off: int
    up: ScalingResponse
    down: ScalingResponse
    needed_replica_seconds: float
    under_share: float
    over_share: float
    moves: int
    moves_per_minute: float
    most_moves_in_a_minute: int
    recovered_seconds: float | None
    healed: Healing | None
    phases: dict[str, Phase]
    clusters: dict[str, ClusterSeries]


@dataclass(frozen=True)
class Sources:
    """The inputs of the section."""

    record: FederationRecord
    writes: Sequence[HpaWrite]
    statuses: Sequence[FederatedStatus]

    @property
    def began_micros(self) -> int:
        return round(self.record.began_at * 1e6)

    def micros(self, seconds: float) -> int:
        """A time in seconds since the start as microseconds since 1970."""
        return round((self.record.began_at + seconds) * 1e6)


def federation_section(sources: Sources) -> FederationSection:
    """The section."""
    record = sources.record
    schedule, federation = record.schedule, record.schedule.federation
    breach_counts = breaches(sources.writes, federation.min_replicas, federation.max_replicas)
    found = load_changes(schedule, record.samples, record.began_at)
    end = schedule.phase_windows[-1].end
    spent = replica_seconds(schedule, record.samples, record.began_at, 0.0, end)
    moves = [at for at in changes_by_federation(sources.writes) if at >= sources.began_micros]
    phases = {span.name: _phase(sources, span, found) for span in schedule.phase_windows}
    return FederationSection(
        min_replicas=federation.min_replicas,
        max_replicas=federation.max_replicas,
        on_premise=schedule.on_premise,
        on_premise_places=schedule.pod_slots,
        on_premise_most_ready=_most_ready(record, [schedule.on_premise]),
        elsewhere_most_ready=_most_ready(
            record, [name for name in schedule.clusters if name != schedule.on_premise]
        ),
        **_violation_counts(breach_counts, phases),
        up=_scaling_response([each for each in found if each.up]),
        down=_scaling_response([each for each in found if not each.up]),
        needed_replica_seconds=round(spent.needed, 1),
        under_share=round(spent.under / spent.needed, 4) if spent.needed else 0.0,
        over_share=round(spent.over / spent.needed, 4) if spent.needed else 0.0,
        moves=len(moves),
        moves_per_minute=round(len(moves) / (end / 60), 2),
        most_moves_in_a_minute=_most_within(moves, _MINUTE),
        recovered_seconds=_recovered_seconds(sources),
        healed=_healed(sources),
        phases=phases,
        clusters=series.by_cluster(record, sources.writes),
    )


def _violation_counts(breach_counts: Breaches, phases: dict[str, Phase]) -> dict[str, int]:
    off = [abs(each) for p in phases.values() for each in (p.sum_min_off, p.sum_max_off)]
    return {
        "observed_writes": breach_counts.observed,
        "max_breaches": breach_counts.of_max,
        "min_breaches": breach_counts.of_min,
        "worst_sum_off": max(off),
    }


def _phase(sources: Sources, span: PhaseWindow, found: Sequence[LoadChange]) -> Phase:
    record, federation = sources.record, sources.record.schedule.federation
    spent = replica_seconds(record.schedule, record.samples, record.began_at, span.begin, span.end)
    begin, end = sources.micros(span.begin), sources.micros(span.end)
    own = [each for each in found if span.begin <= each.at < span.end]
    shares = shares_at(sources.writes, end)
    return Phase(
        begin_seconds=round(span.begin, 3),
        end_seconds=round(span.end, 3),
        federation_down=span.federation_down,
        partitioned=span.partitioned or "",
        up=_scaling_response([each for each in own if each.up]),
        down=_scaling_response([each for each in own if not each.up]),
        under_replica_seconds=round(spent.under, 1),
        over_replica_seconds=round(spent.over, 1),
        scalings=sum(begin <= at < end for at in _scalings(sources.writes)),
        moves=sum(begin <= at < end for at in changes_by_federation(sources.writes)),
        sum_min=shares.min,
        sum_max=shares.max,
        sum_min_off=shares.min - federation.min_replicas,
        sum_max_off=shares.max - federation.max_replicas,
    )


def _scaling_response(found: Sequence[LoadChange]) -> ScalingResponse:
    took = sorted(each.seconds for each in found if each.seconds is not None)
    return ScalingResponse(
        changes=len(found),
        never_reached=len(found) - len(took),
        median_seconds=round(took[len(took) // 2], 2) if took else None,
        max_seconds=round(took[-1], 2) if took else None,
    )


def _scalings(writes: Sequence[HpaWrite]) -> Iterator[int]:
    """Times when a member's own HPA controller changed its desired replicas."""
    desired: dict[str, int] = {}
    for write in writes:
        if not write.by_federation and desired.get(write.cluster) != write.desired:
            desired[write.cluster] = write.desired
            yield write.at_micros


def _most_within(moments: Sequence[int], length: int) -> int:
    return max((sum(at <= each < at + length for each in moments) for at in moments), default=0)


def _most_ready(record: FederationRecord, clusters: Sequence[str]) -> int:
    sums = (sum(s.ready[name] for name in clusters) for s in record.samples)
    return max(sums, default=0)


def _recovered_seconds(sources: Sources) -> float | None:
    """Seconds to recover from the last outage."""
    events = [event for event in sources.record.events if event.what == FEDERATION_UP]
    since = round(events[-1].at * 1e6) if events else 0
    passes = (status.at_micros for status in sources.statuses if status.at_micros > since)
    first = next(passes, None)
    return None if not events or first is None else round((first - since) / 1e6, 2)


def _healed(sources: Sources) -> Healing | None:
    """The end of the last partition; None without one."""
    events = [event for event in sources.record.events if event.what == RECONNECTED]
    if not events:
        return None
    healed, federation = events[-1], sources.record.schedule.federation
    since = round(healed.at * 1e6)
    passes = (
        status.at_micros
        for status in sources.statuses
        if status.at_micros > since
        and status.states.get(healed.cluster) not in (None, _UNREACHABLE)
    )
    first = next(passes, None)
    if first is None:
        return Healing(cluster=healed.cluster, seconds=None, sums_off=None)
    shares = shares_at(sources.writes, first)
    off = max(abs(shares.min - federation.min_replicas), abs(shares.max - federation.max_replicas))
    return Healing(cluster=healed.cluster, seconds=round((first - since) / 1e6, 2), sums_off=off)
