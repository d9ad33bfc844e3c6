"""Domains that no shard owns, or another one: which of those observed are reported, and when."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import islice, takewhile

from bigfleet.api.v1alpha1.coordinator_pb2 import DiscoveredDomain
from bigfleet.model.domain import Domain
from bigfleet.model.report_limits import MAX_UNOWNED_DOMAINS
from bigfleet.services.shard.coordination import report

MAX_REPEATED_DOMAINS = 100
RESEND_INTERVAL_SECONDS = 30.0


class DomainObservations:
    """Observed unowned domains: which to report now, and which the leader has received. Each shard
    begins with another one, so that of very many domains each is soon repeated by some shard.
    """

    def __init__(self, shard_id: str = "") -> None:
        self._first = zlib.crc32(shard_id.encode())
        #: those that the leader has received, the earliest first, and when
        self._acknowledged_at: dict[Domain, float] = {}
        self._term = 0
        self._seen: Mapping[Domain, Counter[str]] = {}
        self._owned: Collection[Domain] = ()
        #: of those seen that are not owned, the ones that the leader has not received
        self._fresh: dict[Domain, None] = {}

    def due(
        self,
        seen: Mapping[Domain, Counter[str]],
        owned: Collection[Domain],
        now_seconds: float,
    ) -> list[DiscoveredDomain]:
        """At most 1,000 domains, unreported ones first, and of others at most 100, those that were
        reported longest ago. `seen` counts machines by type; it and `owned` are other objects once
        they have changed.
        """
        if seen is not self._seen or owned is not self._owned:
            self._seen, self._owned = seen, owned
            self._forget_others()
        fresh = [*self._fresh]
        first = self._first % max(1, len(fresh))
        due = [*fresh[first:], *fresh[:first]][:MAX_UNOWNED_DOMAINS]
        late = now_seconds - RESEND_INTERVAL_SECONDS
        old = takewhile(lambda each: each[1] <= late, self._acknowledged_at.items())
        more = min(MAX_REPEATED_DOMAINS, MAX_UNOWNED_DOMAINS - len(due))
        due += [domain for domain, _ in islice(old, more)]
        return [_observation(domain, seen[domain]) for domain in due]

    def _forget_others(self) -> None:
        """Keep what is known of domains that are still seen and not owned."""
        foreign = {domain: None for domain in self._seen if domain not in self._owned}
        received = self._acknowledged_at
        self._acknowledged_at = {d: at for d, at in received.items() if d in foreign}
        self._fresh = {domain: None for domain in foreign if domain not in received}

    def acknowledged(
        self, domains: Iterable[DiscoveredDomain], term: int, now_seconds: float
    ) -> None:
        """Record that the leader of `term` has received `domains`; a new leader gets all again."""
        if term != self._term:
            self._term, self._acknowledged_at = term, {}
            self._forget_others()
        for each in domains:
            domain = Domain(each.topology_key, each.topology_value)
            self._fresh.pop(domain, None)
            self._acknowledged_at.pop(domain, None)
            self._acknowledged_at[domain] = now_seconds


def _observation(domain: Domain, counts: Counter[str]) -> DiscoveredDomain:
    return DiscoveredDomain(
        topology_key=domain.key,
        topology_value=domain.value,
        machines=counts.total(),
        instance_type=report.commonest_type(counts),
    )
