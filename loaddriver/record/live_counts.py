"""Counts during a run, for the live view and the ramp's gate."""

from __future__ import annotations

from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Waits:
    """Waits in seconds of bound pods and of pods not bound yet, as growing arrays.

    They are read repeatedly during a run.
    """

    bound: array[float]
    unbound: array[float]


class LiveCounts:
    """Counts of one cluster, from its audit log, or from its watch without a log.

    Waits begin with the due times announced by `ask`, oldest first, else with the creation.
    """

    def __init__(self) -> None:
        self.created_total = 0
        self.bound_total = 0
        self.last_created_micros = 0
        self._asked: defaultdict[str, deque[int]] = defaultdict(deque)
        self._waiting: dict[str, tuple[int, str]] = {}
        self._bound_early: dict[str, int] = {}
        self._bound: defaultdict[str, array[float]] = defaultdict(_seconds)
        self._withdrawn: defaultdict[str, array[float]] = defaultdict(_seconds)

    @property
    def backlog(self) -> int:
        """Pods that exist and have no node."""
        return len(self._waiting)

    def waiting_since_before(self, micros: int) -> int:
        """The number of pods without a node that were due before that time."""
        return sum(since < micros for since, _ in self._waiting.values())

    def ask(self, workload: str, due_micros: int, pods: int) -> None:
        """Announce that so many further pods of a workload are due at that time."""
        self._asked[workload].extend([due_micros] * pods)

    def created(self, uid: str, at_micros: int, step: str, workload: str) -> None:
        """Count a created pod."""
        self.created_total += 1
        self.last_created_micros = max(self.last_created_micros, at_micros)
        asked, since_micros = self._asked.get(workload), at_micros
        if asked and asked[0] <= at_micros:
            since_micros = asked.popleft()
        self._waiting[uid] = (since_micros, step)
        if uid in self._bound_early:
            self.bound(uid, self._bound_early.pop(uid))

    def bound(self, uid: str, at_micros: int) -> None:
        """Count a bound pod. A busy server may log this before the pod's creation."""
        waited = self._waiting.pop(uid, None)
        if waited is None:
            self._bound_early[uid] = at_micros
            return
        self.bound_total += 1
        self._bound[waited[1]].append(max(0, at_micros - waited[0]) / 1e6)

    def removed(self, uid: str, at_micros: int) -> None:
        """Count a deleted pod; it may have been deleted before it was bound."""
        waited = self._waiting.pop(uid, None)
        if waited is not None:
            self._withdrawn[waited[1]].append(max(0, at_micros - waited[0]) / 1e6)

    def bound_of(self, step: str) -> int:
        """The number of bound pods of a step."""
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
    """Ignores all events: a second source of timestamps must not count pods again."""

    def created(self, uid: str, at_micros: int, step: str, workload: str) -> None:
        """Do nothing."""

    def bound(self, uid: str, at_micros: int) -> None:
        """Do nothing."""

    def removed(self, uid: str, at_micros: int) -> None:
        """Do nothing."""


def all_waits(
    live_counts_by_cluster: Iterable[LiveCounts], now_micros: int, step: str | None = None
) -> Waits:
    """The waits of several clusters combined."""
    whole = Waits(_seconds(), _seconds())
    for live_counts in live_counts_by_cluster:
        part = live_counts.waits(now_micros, step)
        whole.bound.extend(part.bound)
        whole.unbound.extend(part.unbound)
    return whole


def _of_step(waits: Mapping[str, array[float]], step: str | None) -> array[float]:
    """A copy; of all steps if `step` is None."""
    wanted = waits.values() if step is None else [waits.get(step, _seconds())]
    copy = _seconds()
    for each in wanted:
        copy.extend(each)
    return copy


def _seconds() -> array[float]:
    return array("d")
