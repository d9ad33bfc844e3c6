"""Holds a roll-up that drops nearly all demand until it is confirmed.

Otherwise an operator with a temporarily empty cache would have its whole cluster reclaimed. The
reduction takes effect after three such roll-ups in a row, or after 30 s without another roll-up:
an operator sends only changes, so silence confirms. Additions take effect at once.
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
# The saved numbers may be off by this factor, so that they are written rarely.
_SAVE_FACTOR = 2

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Held:
    count: int
    pods: int
    since_seconds: float
    accept: Callable[[float], None]


class RollUpGuard:
    """At most one held roll-up per cluster, the latest.

    It is compared with the number of pods of the last accepted one, which `store` keeps across
    restarts. Where that is unknown, as for a cluster that another shard served, each of the
    cluster's machines counts as a pod; `machines_of` returns their number.
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

    def holds(
        self, cluster: str, pods: int, now_seconds: float, accept: Callable[[float], None]
    ) -> str:
        """Why a roll-up of `pods` pods is held; "" when it is accepted: then `accept` was called,
        with the time.

        A held one is accepted when its hold expires.
        """
        before = self._held.pop(cluster, None)
        asked, former = self._before(cluster)
        count = 1 if before is None else before.count + 1
        if asked < MIN_PODS or pods >= MIN_KEPT_FRACTION * asked or count >= CONFIRMATIONS:
            self._accept(cluster, pods)
            accept(now_seconds)
            return ""
        self._held[cluster] = _Held(count, pods, now_seconds, accept)
        return (
            f"held: demand fell from {former} to {pods} pods; it takes effect after "
            f"{CONFIRMATIONS} such roll-ups in a row (this is number {count}), or "
            f"{HOLD_SECONDS:.0f} s without another"
        )

    def release(self, now_seconds: float) -> list[str]:
        """Accept roll-ups whose hold has expired; return the clusters."""
        due = [c for c, h in self._held.items() if now_seconds - h.since_seconds >= HOLD_SECONDS]
        for cluster in due:
            held = self._held.pop(cluster)
            self._accept(cluster, held.pods)
            held.accept(now_seconds)
        return due

    def drop(self, cluster: str) -> None:
        """Drop the held roll-up: its operator has disconnected and can no longer confirm it."""
        self._held.pop(cluster, None)

    def forget(self, cluster: str) -> None:
        """Drop a removed cluster."""
        self._held.pop(cluster, None)
        self._accepted.pop(cluster, None)

    def save(self) -> None:
        """Save the accepted numbers of pods if they have changed much. A failure is retried."""
        if self._store is None or not self._is_stale():
            return
        try:
            self._store.save(self._accepted)
        except BigFleetError as error:
            if not self._failing:
                _LOG.error("demand cannot be saved", extra={"why": str(error)})
            self._failing = True
        else:
            self._kept, self._failing = dict(self._accepted), False
        metrics.shard_demand_not_persisted.set(self._failing)

    def _before(self, cluster: str) -> tuple[int, str]:
        """Number of pods that the cluster last asked for, and its description."""
        if cluster in self._accepted:
            asked = self._accepted[cluster]
            return asked, f"{asked} pods"
        machines = self._machines_of(cluster)
        return machines, f"an unknown number (the cluster has {machines} machines)"

    def _accept(self, cluster: str, pods: int) -> None:
        self._accepted[cluster] = pods

    def _is_stale(self) -> bool:
        if self._kept.keys() != self._accepted.keys():
            return True
        pairs = ((pods, self._kept[cluster]) for cluster, pods in self._accepted.items())
        return any(max(pair) >= MIN_PODS and max(pair) > _SAVE_FACTOR * min(pair) for pair in pairs)
