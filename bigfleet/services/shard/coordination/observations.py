"""Domains of machines that this shard sees and does not own, told to the coordinator in portions.

Another shard may well own them; only the coordinator knows. So each is told when it is first seen,
again after a change of leader, and now and then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from bigfleet.api.v1alpha1.coordinator_pb2 import DiscoveredDomain
from bigfleet.model.domain import Domain

MAX_DOMAINS = 1000
RESEND_INTERVAL_SECONDS = 30.0


class DomainObservations:
    """What is to be told, and what was."""

    def __init__(self) -> None:
        self._acknowledged_at: dict[Domain, float] = {}
        self._term = 0

    def due(
        self,
        seen: Mapping[Domain, Counter[str]],
        owned: Collection[Domain],
        now_seconds: float,
    ) -> list[DiscoveredDomain]:
        """At most 1,000, those that were never told first. `seen` counts machines by type."""
        foreign = {domain: counts for domain, counts in seen.items() if domain not in owned}
        self._acknowledged_at = {d: at for d, at in self._acknowledged_at.items() if d in foreign}
        late = now_seconds - RESEND_INTERVAL_SECONDS
        due = [domain for domain in foreign if self._acknowledged_at.get(domain, late) <= late]
        due.sort(key=lambda domain: self._acknowledged_at.get(domain, 0.0))
        return [_observation(domain, foreign[domain]) for domain in due[:MAX_DOMAINS]]

    def acknowledged(
        self, domains: Iterable[DiscoveredDomain], term: int, now_seconds: float
    ) -> None:
        """The leader of `term` has heard of `domains`; a new leader must hear of all again."""
        if term != self._term:
            self._term, self._acknowledged_at = term, {}
        for each in domains:
            self._acknowledged_at[Domain(each.topology_key, each.topology_value)] = now_seconds


def _observation(domain: Domain, counts: Counter[str]) -> DiscoveredDomain:
    """Among equally common types the first by name is told, so that all shards tell the same."""
    return DiscoveredDomain(
        topology_key=domain.key,
        topology_value=domain.value,
        machines=counts.total(),
        instance_type=min(counts, key=lambda name: (-counts[name], name)),
    )
