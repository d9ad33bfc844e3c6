"""The shards' latest reports: soft state of one leader; a new leader has it within seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire

# Five missed reports, at one every two seconds.
LIVENESS_TIMEOUT_SECONDS = 10.0


@dataclass
class ReceivedReport:
    """The latest report of a shard, and those instructions accepted since its start that no row
    shows as accepted.
    """

    snapshot: wire.ShardReportSnapshot
    at_seconds: float
    seen_term: int = 0
    accepted_ids: set[str] = field(default_factory=set)


class Reports:
    """Reports by shard. Times are seconds of a monotonic clock."""

    def __init__(self, since_seconds: float) -> None:
        self.since_seconds = since_seconds
        self._received: dict[str, ReceivedReport] = {}
        self._epoch_issued: dict[str, float] = {}

    def record(
        self, report: wire.ShardReport, now_seconds: float, received_at_unix_ns: int
    ) -> ReceivedReport:
        """Store a report; acknowledgements of an earlier epoch of the shard are dropped."""
        snapshot = wire.ShardReportSnapshot(
            shard_id=report.shard_id,
            cycle=report.cycle,
            received_at_unix_ns=received_at_unix_ns,
            summary=report.summary,
            shortfalls=report.shortfalls,
            shortfalls_omitted=report.shortfalls_omitted,
            shard_epoch=report.shard_epoch,
            out_of_domain_machines=report.out_of_domain_machines,
            out_of_domain_omitted=report.out_of_domain_omitted,
            splits=report.splits,
            movable_domains=report.movable_domains,
            quotas=report.quotas,
            removals=report.removals,
        )
        last = self._received.get(report.shard_id)
        same_start = last is not None and last.snapshot.shard_epoch == report.shard_epoch
        accepted_ids = last.accepted_ids if last is not None and same_start else set()
        received = ReceivedReport(snapshot, now_seconds, report.seen_term, accepted_ids)
        self._received[report.shard_id] = received
        return received

    def of(self, shard: str) -> ReceivedReport | None:
        """The shard's latest report, if this leader has received one."""
        return self._received.get(shard)

    def live(self, now_seconds: float) -> Iterator[str]:
        """Shards that have reported within the liveness timeout."""
        for shard, received in self._received.items():
            if now_seconds - received.at_seconds <= LIVENESS_TIMEOUT_SECONDS:
                yield shard

    def epoch_issued(self, shard: str, now_seconds: float) -> None:
        """Record that a process of this shard got a new epoch, and will report soon."""
        self._epoch_issued[shard] = now_seconds

    def seconds_since_alive(self, shard: str, now_seconds: float) -> float:
        """Seconds since the shard was last known alive, at most the time since this leader took
        over.
        """
        received = self._received.get(shard)
        last = max(
            self.since_seconds,
            self._epoch_issued.get(shard, self.since_seconds),
            received.at_seconds if received else self.since_seconds,
        )
        return now_seconds - last

    def observed_long_enough(self, now_seconds: float) -> bool:
        """Whether this leader has led long enough to consider a shard silent."""
        return now_seconds - self.since_seconds > LIVENESS_TIMEOUT_SECONDS

    def forget(self, shard: str) -> None:
        """Drop the report of a removed shard."""
        self._received.pop(shard, None)

    def newest_term_seen(self) -> int:
        """The highest term of any instruction that a shard has accepted."""
        return max((received.seen_term for received in self._received.values()), default=0)
