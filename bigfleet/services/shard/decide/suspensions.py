"""Suspensions: clusters for which no machines are acquired now.

Machines that are assigned to a cluster in every cycle but never join it would be missing elsewhere,
or be paid for without use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from bigfleet.services.shard.fleet.backoff import FailureBackOff
from bigfleet.services.shard.sessions.registry import Sessions


class Suspensions:
    """Clusters whose operator has been disconnected for `absence_seconds` or does not answer, those
    whose machines do not become Ready, and those with Nodes of machines that `may_be_unlisted`.
    """

    def __init__(
        self,
        sessions: Sessions,
        failures: FailureBackOff,
        absence_seconds: float,
        may_be_unlisted: Callable[[str], bool],
    ) -> None:
        self._sessions, self._failures = sessions, failures
        self._may_be_unlisted = may_be_unlisted
        self._absence_seconds = absence_seconds
        self._last_seconds: dict[str, float] = {}

    def clusters(self, known: Collection[str], now_seconds: float) -> frozenset[str]:
        """The suspended ones among the `known` clusters."""
        connected = set(self._sessions.clusters())
        self._last_seconds = {
            name: now_seconds if name in connected else self._last_seconds.get(name, now_seconds)
            for name in known
        }
        absent = {
            name
            for name, last in self._last_seconds.items()
            if name not in connected and now_seconds - last >= self._absence_seconds
        }
        unready = self._failures.clusters(now_seconds)
        return frozenset({*absent, *self.silent(), *unready, *self._partly_known()})

    def _partly_known(self) -> Iterator[str]:
        """Clusters that would be given machines in place of those that they have."""
        for session in self._sessions.open_sessions():
            if any(map(self._may_be_unlisted, session.asked)):
                yield session.cluster

    def away_seconds(self, cluster: str, now_seconds: float) -> float:
        """For how long the cluster's operator has been disconnected, as far as this shard knows;
        0 for an unknown cluster.
        """
        return now_seconds - self._last_seconds.get(cluster, now_seconds)

    def is_out_of_reach(self, cluster: str, now_seconds: float) -> bool:
        """Whether its operator has been disconnected, or answered nothing, for long."""
        session = self._sessions.of(cluster)
        if session is not None:
            return session.is_silent_for_long
        return self.away_seconds(cluster, now_seconds) >= self._absence_seconds

    def on_trial(self) -> Collection[str]:
        """Clusters that get one machine at a time, since none of theirs became Ready last, or their
        operator has not answered.
        """
        unproved = (s.cluster for s in self._sessions.open_sessions() if s.is_on_probation)
        return {*self._failures.on_trial(), *unproved}

    def silent(self) -> set[str]:
        """Clusters whose operator is connected and does not answer."""
        return {s.cluster for s in self._sessions.open_sessions() if s.is_silent}
