"""The invariants of a federation: the sums of its clusters' min and max."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loaddriver.record.hpas import HpaWrite, Share


@dataclass
class Shares:
    """Each cluster's share after the writes so far, and their sums."""

    by_cluster: dict[str, Share] = field(default_factory=dict)

    def take(self, write: HpaWrite) -> bool:
        """Apply a write; return whether it changed the cluster's share."""
        before = self.by_cluster.get(write.cluster)
        if write.share is None:
            self.by_cluster.pop(write.cluster, None)
        else:
            self.by_cluster[write.cluster] = write.share
        return before != write.share

    @property
    def min(self) -> int:
        return sum(share.min for share in self.by_cluster.values())

    @property
    def max(self) -> int:
        return sum(share.max for share in self.by_cluster.values())


@dataclass(frozen=True)
class Breaches:
    """The number of `observed` changes of a share, and of those that violate the user's sums."""

    observed: int
    of_max: int
    of_min: int


def breaches(writes: Sequence[HpaWrite], least: int, most: int) -> Breaches:
    """Count sums of max above `most`, and sums of min below `least` once it was reached."""
    shares, observed, of_max, of_min, min_was_reached = Shares(), 0, 0, 0, False
    for write in writes:
        if not shares.take(write):
            continue
        observed += 1
        min_was_reached = min_was_reached or shares.min >= least
        of_max += shares.max > most
        of_min += min_was_reached and shares.min < least
    return Breaches(observed, of_max, of_min)


def shares_at(writes: Sequence[HpaWrite], at_micros: int) -> Shares:
    """The shares at a point in time."""
    shares = Shares()
    for write in writes:
        if write.at_micros <= at_micros:
            shares.take(write)
    return shares


def changes_by_federation(writes: Sequence[HpaWrite]) -> list[int]:
    """Times of share changes by the federation, in microseconds since 1970."""
    shares = Shares()
    return [write.at_micros for write in writes if shares.take(write) and write.by_federation]
