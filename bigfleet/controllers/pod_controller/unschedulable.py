"""Which unschedulable pods ask for a machine beyond those that are there, and when. Pure.

BigFleet counts machines, kube-scheduler places pods, and the count knows less: where other pods
sit, and whatever no model of capacity contains. So a need can be met on paper while its pods wait.
This closes the loop by what is seen.

| A pod that kube-scheduler calls Unschedulable           | asks                               |
|---------------------------------------------------------|------------------------------------|
| has no CapacityRequest yet, or a need known to be short | not: machines are missing (*)      |
| will find room on a machine on its way, or has a        | not: that is why pods wait (*)     |
| nominated Node                                          |                                    |
| has seen none of this for the hold of 15 s, in which    | for a machine                      |
| kube-scheduler has tried again                          |                                    |
| waits all the same, 60 s later; and 180 s after that    | for a second, and for a third      |
| has asked three times                                   | no more: it lacks something else   |
| is of a gang that runs nowhere yet                      | only if it is the oldest of them,  |
|                                                         | as the others must follow it, and  |
|                                                         | 30 s later: so long an operator    |
|                                                         | waits for the rest of a gang       |
| cannot be helped by any machine, as the caller says     | not for a minute; others of its    |
|                                                         | group take its place               |

(*) The hold begins anew, and this time does not count for the 60 and the 180 seconds.

Of pods that are alike (a `group`) at most ten ask at a time, the oldest first: what a machine
takes is known only once kube-scheduler has filled it, and it usually takes many of them. So ten
thousand pods that nothing helps cost thirty requests. Each one that was helped lets one more of
its group ask at a time, so that those that machines do help need not wait for each other. Of all
groups together at most twenty pods ask in one look, again the oldest first.

When a pod is bound, or has gone, it is forgotten, and its requests with it: its machine then serves
the cluster like any other.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

UNSCHEDULABLE_DELAY_SECONDS = 15.0
# For this time after its last pod a gang that is not whole is not reported to the shard.
GANG_TIMEOUT_SECONDS = 30.0
RETRY_INTERVAL_SECONDS = (60.0, 180.0)
MAX_ADDITIONAL_PER_POD = 1 + len(RETRY_INTERVAL_SECONDS)
MAX_ASKING_PER_GROUP = 10
MAX_REQUESTS_PER_PASS = 20
DEFER_SECONDS = 60.0


class Outlook(NamedTuple):
    """What else is known of a waiting pod: whether it should be `should_wait`, because its need is
    short or a machine is coming; and whether it is of a gang that runs nowhere yet.
    """

    should_wait: bool
    gang_unplaced: bool = False


class AdditionalRequest(NamedTuple, Generic[K]):
    """`pod` asks for its `number`th additional machine."""

    pod: K
    number: int


@dataclass(slots=True, eq=False)
class _Waiting(Generic[K]):
    """`quiet` is for how long nothing was to be waited for; `waited` is the sum of all such times
    since it asked last.
    """

    pod: K
    group: Hashable
    created: str
    looked_at: float
    asked: int = 0
    quiet: float = 0.0
    waited: float = 0.0
    deferred_until: float = 0.0

    def pass_time(self, now: float, *, should_wait: bool) -> None:
        elapsed, self.looked_at = now - self.looked_at, now
        self.quiet = 0.0 if should_wait else self.quiet + elapsed
        self.waited += 0.0 if should_wait else elapsed

    def is_due(self, delay_seconds: float) -> bool:
        if self.asked >= MAX_ADDITIONAL_PER_POD or self.quiet < delay_seconds:
            return False
        return self.asked == 0 or self.waited >= RETRY_INTERVAL_SECONDS[self.asked - 1]


@dataclass(slots=True, eq=False)
class _Group(Generic[K]):
    """`asking` are those that have asked, the others wait for their turn."""

    asking: dict[K, _Waiting[K]] = field(default_factory=dict)
    others: dict[K, _Waiting[K]] = field(default_factory=dict)
    # Whose turn it is, so that their clocks run.
    next: list[_Waiting[K]] = field(default_factory=list)
    at_a_time: int = MAX_ASKING_PER_GROUP


class UnschedulablePods(Generic[K]):
    """The pods that wait, by group. Moments are in seconds and never go back."""

    def __init__(self, delay_seconds: float = UNSCHEDULABLE_DELAY_SECONDS) -> None:
        self._delay_seconds = delay_seconds
        self._groups: dict[Hashable, _Group[K]] = {}
        self._waiting: dict[K, _Waiting[K]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[K]:
        return iter(self._waiting)

    def __contains__(self, pod: object) -> bool:
        return pod in self._waiting

    def observe(self, pod: K, group: Hashable, created: str, now: float, asked: int = 0) -> None:
        """kube-scheduler finds no place for `pod`, which was `created` then (RFC 3339) and has
        `asked` so often already. To be seen again changes nothing, unless its group is another.
        """
        known = self._waiting.get(pod)
        if known is not None and known.group == group:
            return
        if known is not None:
            asked = known.asked
            self.forget(pod)
        waiting = self._waiting[pod] = _Waiting(pod, group, created, now, asked)
        group_state = self._groups.setdefault(group, _Group())
        (group_state.asking if asked else group_state.others)[pod] = waiting

    def forget(self, pod: K, *, bound: bool = False) -> int:
        """`pod` is bound, has ended or is gone; how often it had asked."""
        waiting = self._waiting.pop(pod, None)
        if waiting is None:
            return 0
        group_state = self._groups[waiting.group]
        group_state.at_a_time += bound and waiting.asked > 0
        group_state.asking.pop(pod, None)
        group_state.others.pop(pod, None)
        group_state.next = [each for each in group_state.next if each is not waiting]
        if not group_state.asking and not group_state.others:
            del self._groups[waiting.group]
        return waiting.asked

    def defer(self, pod: K, now: float) -> None:
        """No machine helps `pod` as things are: what it was about to ask for does not count."""
        waiting = self._waiting.get(pod)
        if waiting is None:
            return
        waiting.asked, waiting.quiet = max(0, waiting.asked - 1), 0.0
        waiting.deferred_until = now + DEFER_SECONDS
        group_state = self._groups[waiting.group]
        if not waiting.asked and pod in group_state.asking:
            group_state.others[pod] = group_state.asking.pop(pod)
        group_state.next = [each for each in group_state.next if each is not waiting]

    def asked(self, pod: K) -> int:
        """How often `pod` has asked."""
        waiting = self._waiting.get(pod)
        return waiting.asked if waiting else 0

    def due_requests(
        self, now: float, outlook: Callable[[K], Outlook]
    ) -> list[AdditionalRequest[K]]:
        """Who asks now. It is to be called every few seconds: time passes between two looks."""
        due = [
            each
            for group_state in self._groups.values()
            for each in self._due(group_state, now, outlook)
        ]
        asks = heapq.nsmallest(MAX_REQUESTS_PER_PASS, due, key=lambda each: each.created)
        for each in asks:
            each.asked += 1
            each.waited = 0.0
            group_state = self._groups[each.group]
            if each.pod in group_state.others:
                group_state.asking[each.pod] = group_state.others.pop(each.pod)
                group_state.next.remove(each)
        return [AdditionalRequest(each.pod, each.asked) for each in asks]

    def _due(
        self, group_state: _Group[K], now: float, outlook: Callable[[K], Outlook]
    ) -> Iterator[_Waiting[K]]:
        self._fill_slots(group_state, now)
        for place, each in enumerate([*group_state.asking.values(), *group_state.next]):
            seen = outlook(each.pod)
            each.pass_time(now, should_wait=seen.should_wait or (seen.gang_unplaced and place > 0))
            gang_timeout_seconds = GANG_TIMEOUT_SECONDS if seen.gang_unplaced else 0.0
            if each.is_due(self._delay_seconds + gang_timeout_seconds):
                yield each

    def _fill_slots(self, group_state: _Group[K], now: float) -> None:
        """Fill the group's free places with its oldest pods; a clock begins when its pod's turn
        does. Those whose turn it was, but that are older than nobody any more, keep it.
        """
        free = group_state.at_a_time - len(group_state.asking) - len(group_state.next)
        if free <= 0 or len(group_state.others) == len(group_state.next):
            return
        taken = {id(each) for each in group_state.next}
        candidates = (
            each
            for each in group_state.others.values()
            if id(each) not in taken and each.deferred_until <= now
        )
        for each in heapq.nsmallest(free, candidates, key=lambda each: each.created):
            each.looked_at, each.quiet, each.waited = now, 0.0, 0.0
            group_state.next.append(each)
