"""Which pods are held by their gang to a domain that others have filled. Pure.

kube-scheduler binds a gang's pods one by one. The first go where there is room for them, other pods
take what is left of it, and those bound hold the rest of the gang to that domain. All the machines
that the gang asked for are there, so nothing will ever change by itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

# By then kube-scheduler has tried again several times, also what it had put off.
PATIENCE_SECONDS = 60.0
# Pods of others may fill also the machine that was asked for in their stead.
_AGAIN_SECONDS = 120.0
MOST_TIMES = 3


class Stranded(NamedTuple, Generic[K]):
    """A pod that waits while a companion runs on node `beside`, and how many times over it is to
    be asked for by now.
    """

    pod: K
    beside: str
    times: int


@dataclass
class _Gang(Generic[K]):
    moved_at: float
    bound: dict[K, str] = field(default_factory=dict)
    waiting: dict[K, None] = field(default_factory=dict)


class Gangs(Generic[K]):
    """Pods of gangs, and when something last happened in each gang. Moments are in seconds."""

    def __init__(self) -> None:
        self._gangs: dict[Hashable, _Gang[K]] = {}
        self._gang_of: dict[K, Hashable] = {}
        self._torn: set[Hashable] = set()

    def see(self, pod: K, gang: Hashable, node: str, now: float) -> None:
        """`pod` is of `gang`, and bound to `node`, or "" while it waits."""
        its = self._gangs.setdefault(gang, _Gang(now))
        if pod not in (its.bound if node else its.waiting):
            its.moved_at = now
        self._gang_of[pod] = gang
        if node:
            its.waiting.pop(pod, None)
            its.bound[pod] = node
        else:
            its.waiting[pod] = None
        self._note(gang, its)

    def forget(self, pod: K) -> None:
        """`pod` has ended or is gone; harmless if it is of no gang."""
        gang = self._gang_of.pop(pod, None)
        if gang is None:
            return
        its = self._gangs[gang]
        its.bound.pop(pod, None)
        its.waiting.pop(pod, None)
        self._note(gang, its)

    def stranded(self, now: float) -> Iterator[Stranded[K]]:
        """Who waits beside a companion, in gangs in which nothing has happened for long."""
        for gang in self._torn:
            its = self._gangs[gang]
            overdue = now - its.moved_at - PATIENCE_SECONDS
            if overdue >= 0:
                times = min(MOST_TIMES, 1 + int(overdue // _AGAIN_SECONDS))
                beside = next(iter(its.bound.values()))
                yield from (Stranded(pod, beside, times) for pod in its.waiting)

    def _note(self, gang: Hashable, its: _Gang[K]) -> None:
        if its.bound and its.waiting:
            self._torn.add(gang)
        else:
            self._torn.discard(gang)
        if not its.bound and not its.waiting:
            del self._gangs[gang]
