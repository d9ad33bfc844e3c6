"""Running counts while a run goes on, for the live view and for the gate of the ramp."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Waits:
    """How long pods waited, in seconds: those that were bound, and those that were not (yet).

    Arrays, because they are looked at again and again while they grow.
    """

    bound: array[float]
    unbound: array[float]


class LiveCounts:
    """Counts of one cluster, fed by its audit log, or by its watch where there is no log."""

    def __init__(self) -> None:
        self.created_total = 0
        self.bound_total = 0
        self.last_created_micros = 0
        self._waiting: dict[str, tuple[int, str]] = {}
        self._bound_early: dict[str, int] = {}
        self._bound: defaultdict[str, array[float]] = defaultdict(_seconds)
        self._withdrawn: defaultdict[str, array[float]] = defaultdict(_seconds)

    @property
    def backlog(self) -> int:
        """Pods that exist and have no node."""
        return len(self._waiting)

    def waiting_since_before(self, micros: int) -> int:
        """How many pods have come before that moment and have no node."""
        return sum(since < micros for since, _ in self._waiting.values())

    def created(self, uid: str, at_micros: int, step: str) -> None:
        """A pod came."""
        self.created_total += 1
        self.last_created_micros = max(self.last_created_micros, at_micros)
        self._waiting[uid] = (at_micros, step)
        if uid in self._bound_early:
            self.bound(uid, self._bound_early.pop(uid))

    def bound(self, uid: str, at_micros: int) -> None:
        """A pod got its node. A busy server may log this before the pod's creation."""
        waited = self._waiting.pop(uid, None)
        if waited is None:
            self._bound_early[uid] = at_micros
            return
        self.bound_total += 1
        self._bound[waited[1]].append(max(0, at_micros - waited[0]) / 1e6)

    def removed(self, uid: str, at_micros: int) -> None:
        """A pod was deleted; if it still waited, it waited in vain."""
        waited = self._waiting.pop(uid, None)
        if waited is not None:
            self._withdrawn[waited[1]].append(max(0, at_micros - waited[0]) / 1e6)

    def bound_of(self, step: str) -> int:
        """How many pods of a step are bound."""
        return len(self._bound.get(step, ()))

    def waits(self, now_micros: int, step: str | None = None) -> Waits:
        """All waits so far, or those of one step of the ramp."""
        unbound = _of_step(self._withdrawn, step)
        unbound.extend(
            max(0, now_micros - since) / 1e6
            for since, of_step in self._waiting.values()
            if step in (None, of_step)
        )
        return Waits(_of_step(self._bound, step), unbound)


class NullListener:
    """Listens to nothing: the second source of stamps must not count pods again."""

    def created(self, uid: str, at_micros: int, step: str) -> None:
        """Not counted."""

    def bound(self, uid: str, at_micros: int) -> None:
        """Not counted."""

    def removed(self, uid: str, at_micros: int) -> None:
        """Not counted."""


def all_waits(
    live_counts_by_cluster: Iterable[LiveCounts], now_micros: int, step: str | None = None
) -> Waits:
    """The waits of several clusters together."""
    whole = Waits(_seconds(), _seconds())
    for live_counts in live_counts_by_cluster:
        part = live_counts.waits(now_micros, step)
        whole.bound.extend(part.bound)
        whole.unbound.extend(part.unbound)
    return whole


def _of_step(waits: Mapping[str, array[float]], step: str | None) -> array[float]:
    """A copy; of all steps if none is named."""
    wanted = waits.values() if step is None else [waits.get(step, _seconds())]
    copy = _seconds()
    for each in wanted:
        copy.extend(each)
    return copy


def _seconds() -> array[float]:
    return array("d")
