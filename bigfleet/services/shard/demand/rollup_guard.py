"""Doubt about a roll-up that takes back nearly everything at once.

An operator whose cache is empty for a moment would otherwise have its whole cluster reclaimed. What
such a roll-up takes back does not count until three in a row agree, or until nothing else was said
for as long as three would take: an operator that speaks only on change says nothing while it
agrees. What it adds counts at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from bigfleet.model.errors import BigFleetError
from bigfleet.observe import metrics
from bigfleet.ports.store import DemandStore

MIN_PODS = 10
MIN_KEPT_FRACTION = 0.1
CONFIRMATIONS = 3
HOLD_SECONDS = 30.0
# What is on the disk may be off by this factor, so that it is seldom written.
_SAVE_FACTOR = 2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Held:
    count: int
    pods: int
    since_seconds: float
    accept: Callable[[], None]


class RollUpGuard:
    """At most one held roll-up per cluster, the newest.

    It is compared with how many pods the last one asked for that was believed. After a restart
    `store` says that. Where it does not, as for a cluster that another shard served, each machine
    in the cluster's service counts as a pod; `machines_of` says how many there are.
    """

    def __init__(
        self,
        store: DemandStore | None = None,
        machines_of: Callable[[str], int] = lambda _: 0,
    ) -> None:
        self._store, self._machines_of = store, machines_of
        self._held: dict[str, _Held] = {}
        self._kept = dict(store.load()) if store else {}
        self._accepted = dict(self._kept)
        self._failing = False

    def holds(self, cluster: str, pods: int, now_seconds: float, accept: Callable[[], None]) -> str:
        """Why the roll-up is held, "" when it was taken: then `accept` has been called.

        It asks for so many `pods`. A held one is accepted when it is released.
        """
        before = self._held.pop(cluster, None)
        asked, what = self._before(cluster)
        count = 1 if before is None else before.count + 1
        if asked < MIN_PODS or pods >= MIN_KEPT_FRACTION * asked or count >= CONFIRMATIONS:
            self._accept(cluster, pods, accept)
            return ""
        self._held[cluster] = _Held(count, pods, now_seconds, accept)
        return (
            f"held: it asks for {pods} pods where {what}; what it takes back counts once "
            f"{CONFIRMATIONS} in a row say so (this is number {count}) or "
            f"{HOLD_SECONDS:.0f} s pass "
            "without another"
        )

    def release(self, now_seconds: float) -> list[str]:
        """Take over what was held long enough without contradiction; names the clusters."""
        due = [c for c, h in self._held.items() if now_seconds - h.since_seconds >= HOLD_SECONDS]
        for cluster in due:
            held = self._held.pop(cluster)
            self._accept(cluster, held.pods, held.accept)
        return due

    def drop(self, cluster: str) -> None:
        """Drop what is held: whoever said it is gone and cannot contradict it any more."""
        self._held.pop(cluster, None)

    def forget(self, cluster: str) -> None:
        """The cluster is gone."""
        self._held.pop(cluster, None)
        self._accepted.pop(cluster, None)

    def save(self) -> None:
        """Put on the disk what a restart needs, if it has changed by much. What cannot be written
        now is written once there is room.
        """
        if self._store is None or not self._is_stale():
            return
        try:
            self._store.save(self._accepted)
        except BigFleetError as error:
            if not self._failing:
                _log.error("what clusters ask for is not kept", extra={"why": str(error)})
            self._failing = True
        else:
            self._kept, self._failing = dict(self._accepted), False
        metrics.shard_demand_not_persisted.set(self._failing)

    def _before(self, cluster: str) -> tuple[int, str]:
        """How many pods the cluster is known to have asked for, and how that is known."""
        if cluster in self._accepted:
            asked = self._accepted[cluster]
            return asked, f"{asked} were asked for before"
        machines = self._machines_of(cluster)
        return machines, f"{machines} machines are in its cluster's service"

    def _accept(self, cluster: str, pods: int, accept: Callable[[], None]) -> None:
        self._accepted[cluster] = pods
        accept()

    def _is_stale(self) -> bool:
        if self._kept.keys() != self._accepted.keys():
            return True
        pairs = ((pods, self._kept[cluster]) for cluster, pods in self._accepted.items())
        return any(max(pair) >= MIN_PODS and max(pair) > _SAVE_FACTOR * min(pair) for pair in pairs)
