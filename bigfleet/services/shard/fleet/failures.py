"""Failures in a row, and for how long each of them delays the next attempt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from bigfleet.model.retry_delays import RetryDelays

_Key = TypeVar("_Key")

_FORGET_SECONDS = 3600.0


@dataclass(frozen=True)
class Failure:
    """`number` failures in a row, the last one with its time and error; no retry before
    `until_seconds`, by the `clusters` concerned or, if there are none, by any.
    """

    number: int
    last_seconds: float
    until_seconds: float
    error: str
    clusters: frozenset[str] = frozenset()

    def concerns(self, cluster: str) -> bool:
        """Whether the cluster must not retry."""
        return not self.clusters or cluster in self.clusters


class BackOff(Generic[_Key]):
    """Backoff with these delays. Failures during a backoff do not count: their attempts began
    before it.
    """

    def __init__(self, delays: RetryDelays) -> None:
        self._delays = delays
        self._failures: dict[_Key, Failure] = {}

    def failed(self, key: _Key, error: str, now_seconds: float) -> None:
        """Record a failure of `key`."""
        before = self._failures.get(key)
        if before is None or now_seconds >= before.until_seconds:
            number = before.number + 1 if before else 1
            until_seconds = now_seconds + self._delays.after(number)
            self._failures[key] = Failure(number, now_seconds, until_seconds, error)

    def succeeded(self, key: _Key) -> None:
        """Reset the backoff of `key`."""
        self._failures.pop(key, None)

    def repeated(self, times: int) -> Mapping[_Key, Failure]:
        """Keys with at least so many failures in a row, in backoff or not."""
        return {key: failure for key, failure in self._failures.items() if failure.number >= times}

    def backed_off(self, now_seconds: float) -> Mapping[_Key, Failure]:
        """Keys in backoff. Failures long past are dropped."""
        for key, failure in list(self._failures.items()):
            if now_seconds > failure.until_seconds + _FORGET_SECONDS:
                del self._failures[key]
        return {k: f for k, f in self._failures.items() if now_seconds < f.until_seconds}


class BootBackOff(Generic[_Key]):
    """Backoff of what may fail to boot for its own sake or for that of the cluster.

    What has failed in one cluster is in backoff for that one; what has failed in several, for all.
    Clusters that are excused, with the seconds for which each at least does not retry, keep nothing
    from others, unless it has failed in no other.
    """

    def __init__(self, delays: RetryDelays) -> None:
        self._delays = delays
        self._failures: dict[_Key, dict[str, Failure]] = {}

    def failed(
        self,
        key: _Key,
        cluster: str,
        error: str,
        now_seconds: float,
        excused: Mapping[str, float],
    ) -> None:
        """Record a failure of `key`. During a backoff it shows only that it fails there, too."""
        its = self._failures.setdefault(key, {})
        number = its[cluster].number if cluster in its else 0
        delayed = (each for each in self._delaying(its, excused) if each.concerns(cluster))
        if any(now_seconds < each.until_seconds for each in delayed):
            if cluster not in its:
                its[cluster] = Failure(0, now_seconds, now_seconds, error)
            return
        until_seconds = now_seconds + self._delays.after(number + 1)
        its[cluster] = Failure(number + 1, now_seconds, until_seconds, error)

    def succeeded(self, key: _Key, cluster: str) -> None:
        """Forget the failures of `key` in the cluster."""
        self._failures.get(key, {}).pop(cluster, None)

    def has_failed(self, key: _Key, cluster: str) -> bool:
        """Whether `key` has failed in the cluster since its last success there."""
        return cluster in self._failures.get(key, {})

    def backed_off(
        self, now_seconds: float, excused: Mapping[str, float]
    ) -> Iterator[tuple[_Key, Failure]]:
        """What is in backoff now, for whom; maybe several times. Failures long past are dropped."""
        for key, its in list(self._failures.items()):
            for cluster, failure in list(its.items()):
                if now_seconds > failure.until_seconds + _FORGET_SECONDS:
                    del its[cluster]
            if not its:
                del self._failures[key]
            for failure in self._delaying(its, excused):
                if now_seconds < failure.until_seconds:
                    yield key, failure

    def _delaying(
        self, its: Mapping[str, Failure], excused: Mapping[str, float]
    ) -> Iterator[Failure]:
        """The failures that count, for whom, from those in each cluster."""
        blamed = {cluster for cluster in its if cluster not in excused} or {*its}
        for cluster, failure in its.items():
            if cluster not in blamed or len(blamed) == 1:
                rest_seconds = failure.last_seconds + excused.get(cluster, 0.0)
                until_seconds = max(failure.until_seconds, rest_seconds)
                clusters = frozenset({cluster})
                yield Failure(
                    failure.number, failure.last_seconds, until_seconds, failure.error, clusters
                )
        if len(blamed) > 1:
            last = max((its[cluster] for cluster in blamed), key=lambda each: each.last_seconds)
            number = sum(its[cluster].number for cluster in blamed)
            until_seconds = last.last_seconds + self._delays.after(number)
            yield Failure(number, last.last_seconds, until_seconds, last.error)
