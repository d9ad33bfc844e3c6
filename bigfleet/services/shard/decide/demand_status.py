"""Demand statuses: what each cluster's operator is sent about its unmet needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from bigfleet.api.need_codec import sizes_to_wire
from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.engine.decision import Decision, Shortfall
from bigfleet.engine.explain.explain import Explainer
from bigfleet.engine.explain.explanation import Reason
from bigfleet.engine.snapshot import Demand, Fleet, Rows
from bigfleet.model.need import Need, Size, sizes_of, total_of
from bigfleet.services.shard.decide.quarantine import QUARANTINE_MESSAGE, Quarantine

# Younger shortfalls often resolve by themselves and are not reported.
REPORT_AFTER_CYCLES = 3
MIN_INTERVAL_SECONDS = 2.0

StatusByCluster = Mapping[str, shard_pb2.DemandStatus]


def statuses_of(
    fleet: Fleet, asked: Demand, served: Demand, served_by: Rows, decision: Decision
) -> StatusByCluster:
    """The unmet needs of each cluster, as the cluster reported them."""
    short = {shortfall.need: shortfall for shortfall in decision.shortfalls}
    if not short:
        return {}
    explainer = Explainer(fleet, served, decision)
    found: dict[str, shard_pb2.DemandStatus] = {}
    gangs = {
        index: {size.amounts: size.pods for size in shortfall.sizes}
        for index, shortfall in short.items()
    }
    for at in np.flatnonzero(np.isin(served_by, [*short]))[::-1].tolist():
        need, index = asked.needs[at], int(served_by[at])
        shortfall = short[index]
        status = found.setdefault(fleet.clusters[asked.cluster[at]], shard_pb2.DemandStatus())
        if served.needs[index].key == need.key:
            status.short.extend(_of_need(need, shortfall, explainer))
        elif _is_short(need, gangs[index]):
            status.short.append(_status(need, need.sizes, *explainer.reason_and_message(index)))
    return {cluster: status for cluster, status in found.items() if status.short}


def _is_short(gang: Need, short: dict[tuple[tuple[str, int], ...], int]) -> bool:
    """Whether this gang is among the unplaced ones of its size: the last ones are."""
    (whole,) = sizes_of([(total_of(gang.sizes), 1)])
    if short.get(whole.amounts, 0) == 0:
        return False
    short[whole.amounts] -= 1
    return True


def _of_need(
    need: Need, shortfall: Shortfall, explainer: Explainer
) -> Iterator[shard_pb2.NeedStatus]:
    obstacles: dict[str, list[Size]] = {}
    for size in shortfall.impossible:
        obstacles.setdefault(explainer.obstacle(shortfall.need, size), []).append(size)
    for obstacle, sizes in obstacles.items():
        yield _status(need, sizes, Reason.NO_MATCHING_SUPPLY, obstacle)
    if shortfall.sizes and shortfall.age_cycles >= REPORT_AFTER_CYCLES:
        yield _status(need, shortfall.sizes, *explainer.reason_and_message(shortfall.need))


def _status(
    need: Need, sizes: Sequence[Size], reason: Reason, message: str
) -> shard_pb2.NeedStatus:
    fingerprint, group = need.key
    return shard_pb2.NeedStatus(
        profile_fingerprint=fingerprint,
        group=group,
        reason="".join(word.capitalize() for word in reason.name.split("_")),
        message=message,
        sizes=sizes_to_wire(sizes),
    )


def with_quarantined_needs(statuses: StatusByCluster, quarantine: Quarantine) -> StatusByCluster:
    """`statuses` with the quarantined needs added."""
    with_quarantined = dict(statuses)
    for key, quarantined in quarantine.items():
        status = shard_pb2.DemandStatus()
        status.CopyFrom(with_quarantined.get(key.cluster, status))
        status.short.append(
            shard_pb2.NeedStatus(
                profile_fingerprint=key.fingerprint,
                group=key.group,
                reason="CannotBeDecided",
                message=QUARANTINE_MESSAGE.format(error=quarantined.error),
                sizes=sizes_to_wire(quarantined.need.sizes),
            )
        )
        with_quarantined[key.cluster] = status
    return with_quarantined


class DemandStatuses:
    """Sends each cluster its status when it changes, at most every 2 s."""

    def __init__(self) -> None:
        self._sent: dict[str, bytes] = {}
        self._next_seconds = 0.0

    def are_due(self, now_seconds: float) -> bool:
        """Whether statuses are due; if so, the next time is 2 s later."""
        if now_seconds < self._next_seconds:
            return False
        self._next_seconds = now_seconds + MIN_INTERVAL_SECONDS
        return True

    def changes(
        self, statuses: StatusByCluster | None, connected: Collection[str]
    ) -> Iterator[tuple[str, shard_pb2.ShardMessage]]:
        """Messages to `connected` clusters whose status has changed; none if `statuses` is None.

        A cluster whose needs are all met again gets an empty status.
        """
        if statuses is None:
            return
        for cluster in connected:
            status = statuses.get(cluster, shard_pb2.DemandStatus())
            content = status.SerializeToString(deterministic=True)
            if self._sent.get(cluster, b"") != content:
                self._sent[cluster] = content
                yield cluster, shard_pb2.ShardMessage(demand_status=status)

    def forget(self, cluster: str) -> None:
        """Send the cluster everything again in its next session."""
        self._sent.pop(cluster, None)
