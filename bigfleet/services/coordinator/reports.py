"""What shards said of themselves: soft state of one leader; the next hears it within seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire

# Several missed reports, at the two seconds between them.
LIVE_SECONDS = 10.0


@dataclass
class Heard:
    """The newest report of one shard, and the ids of the orders it has accepted since its start."""

    snapshot: wire.ShardReportSnapshot
    at_seconds: float
    seen_term: int = 0
    done: set[str] = field(default_factory=set)


class Reports:
    """By shard. Times are seconds of one clock that never goes back."""

    def __init__(self, since_seconds: float) -> None:
        self.since_seconds = since_seconds
        self._heard: dict[str, Heard] = {}
        self._begun: dict[str, float] = {}

    def take(self, report: wire.ShardReport, now_seconds: float, received_at_unix_ns: int) -> Heard:
        """Keep a report; what an earlier start of the shard acknowledged is void."""
        snapshot = wire.ShardReportSnapshot(
            shard_id=report.shard_id,
            cycle=report.cycle,
            received_at_unix_ns=received_at_unix_ns,
            summary=report.summary,
            shortfalls=report.shortfalls,
            shortfalls_left_out=report.shortfalls_left_out,
            shard_epoch=report.shard_epoch,
            guests=report.guests,
            guests_left_out=report.guests_left_out,
            splits=report.splits,
            removals=report.removals,
        )
        last = self._heard.get(report.shard_id)
        same_start = last is not None and last.snapshot.shard_epoch == report.shard_epoch
        done = last.done if last is not None and same_start else set()
        heard = Heard(snapshot, now_seconds, report.seen_term, done)
        self._heard[report.shard_id] = heard
        return heard

    def of(self, shard: str) -> Heard | None:
        """Its newest report, if this leader has had any."""
        return self._heard.get(shard)

    def live(self, now_seconds: float) -> Iterator[str]:
        """Shards that reported lately."""
        for shard, heard in self._heard.items():
            if now_seconds - heard.at_seconds <= LIVE_SECONDS:
                yield shard

    def begins(self, shard: str, now_seconds: float) -> None:
        """A process of this shard was given a new epoch, and will report soon."""
        self._begun[shard] = now_seconds

    def alive_seconds_ago(self, shard: str, now_seconds: float) -> float:
        """How long ago there was a sign of life of this shard; before this leader, if none since
        then was seen, for as long as it leads.
        """
        heard = self._heard.get(shard)
        last = max(
            self.since_seconds,
            self._begun.get(shard, self.since_seconds),
            heard.at_seconds if heard else self.since_seconds,
        )
        return now_seconds - last

    def silence_known(self, now_seconds: float) -> bool:
        """Whether this leader has listened long enough to call a shard silent."""
        return now_seconds - self.since_seconds > LIVE_SECONDS

    def forget(self, shard: str) -> None:
        """It was removed."""
        self._heard.pop(shard, None)

    def newest_term_seen(self) -> int:
        """The highest term of any order that a shard has taken."""
        return max((heard.seen_term for heard in self._heard.values()), default=0)
