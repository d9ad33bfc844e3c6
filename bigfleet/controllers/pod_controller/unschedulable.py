"""Which unschedulable pods request an additional machine, and when. Pure.

BigFleet counts machines, and kube-scheduler places pods by more than the count knows: by the other
pods on each Node, and by constraints that no capacity model contains. So a need can be met while
its pods stay unschedulable. These rules close the loop by observation.

| A pod with reason Unschedulable                         | requests                           |
|---------------------------------------------------------|------------------------------------|
| has no CapacityRequest yet, or its need is short, but   | none: machines are missing (*)     |
| not for the domains in which its pods are counted       |                                    |
| will fit on an upcoming machine, or has a nominated     | none: that is why it waits (*)     |
| Node                                                    |                                    |
| had none of these for the delay of 15 s, in which       | a machine                          |
| kube-scheduler has retried; for 5 s if no Node has room |                                    |
| for it now, so that a retry cannot help                 |                                    |
| is still waiting 60 s later; and 180 s after that; each | a second, and a third              |
| time after 30 s if no Node has room for it now: others  |                                    |
| have filled the machine that it requested; after 5 s if |                                    |
| one was coming for it, which they have filled, and in   |                                    |
| whatever domain it would have helped                    |                                    |
| has requested three                                     | no more: something else is missing |
| has requested three, and one that had requested as well | its third anew: machines do help   |
| was bound since                                         |                                    |
| belongs to a gang none of which runs yet                | only if it is the oldest of them,  |
|                                                         | since the others must follow it,   |
|                                                         | and 30 s later: so long the        |
|                                                         | operator waits for the whole gang  |
| cannot be helped by a machine, as reported by `defer`   | none for a minute; others of its   |
|                                                         | group take its place               |

(*) The delay starts again, and this time does not count for the 60 and 180 seconds.

Of equivalent pods (a `group`) at most ten request at a time, the oldest first: how many a machine
takes is known only once kube-scheduler has filled it, and it usually takes many. So ten thousand
pods that no machine helps cost thirty requests. Each pod that had requested and is bound lets one
more of its group request at a time, and so does each that is bound on a Node that has just joined
while others of its group have requested: kube-scheduler gives a machine to whichever pod it tries
first. So pods that machines do help need not wait for each other. Where a new Node may have only so
many of a group, each that requests has a machine of its own, and only as many do as are needed for
all. Over all groups at most twenty pods request in one pass, the oldest first.

When a pod is bound or deleted, it is forgotten with its requests; its machine then serves the
cluster like any other.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

UNSCHEDULABLE_DELAY_SECONDS = 15.0
# By then its request has reached the shard, and a machine acquired for it is upcoming.
NO_ROOM_DELAY_SECONDS = 5.0
# In that time others have had the machine that a pod has requested, or it has come too late.
NO_ROOM_RETRY_SECONDS = 30.0
# The operator holds an incomplete gang back for this long after its last pod.
GANG_TIMEOUT_SECONDS = 30.0
RETRY_INTERVAL_SECONDS = (60.0, 180.0)
MAX_ADDITIONAL_PER_POD = 1 + len(RETRY_INTERVAL_SECONDS)
MAX_ASKING_PER_GROUP = 10
MAX_REQUESTS_PER_PASS = 20
DEFER_SECONDS = 60.0


class Outlook(NamedTuple):
    """A waiting pod's outlook. `should_wait`: its need is short or a machine is coming;
    `gang_unplaced`: it belongs to a gang none of which runs yet; `most_on_node`: how many of its
    group a new Node may have, None for any number; `any_domain`: a machine helps it wherever it is.
    """

    should_wait: bool
    gang_unplaced: bool = False
    most_on_node: int | None = None
    any_domain: bool = True


class AdditionalRequest(NamedTuple, Generic[K]):
    """The `number`th additional machine of `pod`; `alone`: not together with those of others."""

    pod: K
    number: int
    alone: bool = False


@dataclass(slots=True, eq=False)
class _Waiting(Generic[K]):
    """`quiet` is for how long it has had no reason to wait; `waited` is the sum of all such times
    since its last request; `has_waited`: at the last look it had a reason; `has_lost`: others have
    the room that it has waited for since.
    """

    pod: K
    group: Hashable
    created: str
    looked_at: float
    asked: int = 0
    quiet: float = 0.0
    waited: float = 0.0
    deferred_until: float = 0.0
    has_waited: bool = False
    has_lost: bool = False

    def pass_time(self, now: float, *, should_wait: bool, any_domain: bool) -> None:
        elapsed, self.looked_at = now - self.looked_at, now
        if should_wait or self.has_waited:
            elapsed = 0.0  # a reason that is gone may have been there until now
        # A machine in a domain that is closed to it may be there, empty.
        self.has_lost |= self.has_waited and not should_wait and any_domain
        self.quiet = 0.0 if should_wait else self.quiet + elapsed
        self.waited += elapsed
        self.has_waited = should_wait

    @property
    def no_room_delay(self) -> float:
        """For how long no Node must have room for it before it requests a machine."""
        is_coming = self.asked and not self.has_lost
        return NO_ROOM_RETRY_SECONDS if is_coming else NO_ROOM_DELAY_SECONDS

    def may_retry(self) -> bool:
        return self.asked == 0 or self.waited >= RETRY_INTERVAL_SECONDS[self.asked - 1]


@dataclass(slots=True, eq=False)
class _Group(Generic[K]):
    """`asking` are the pods that have requested a machine, `others` those that have not."""

    asking: dict[K, _Waiting[K]] = field(default_factory=dict)
    others: dict[K, _Waiting[K]] = field(default_factory=dict)
    # Those of `others` that may request next, and whose time is counted.
    next: list[_Waiting[K]] = field(default_factory=list)
    at_a_time: int = MAX_ASKING_PER_GROUP
    # How many of them a new Node may have.
    most_on_node: int | None = None

    def __len__(self) -> int:
        return len(self.asking) + len(self.others)

    @property
    def alone(self) -> bool:
        """Whether they need more than one machine, whatever its size."""
        return self.most_on_node == 1 or len(self) > (self.most_on_node or math.inf)

    @property
    def free(self) -> int:
        """How many more may request now."""
        useful = math.ceil(len(self) / (self.most_on_node or 1)) if self.alone else len(self)
        return min(self.at_a_time, useful) - len(self.asking) - len(self.next)


class UnschedulablePods(Generic[K]):
    """The unschedulable pods by group. Times are in monotonic seconds."""

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
        """Track an unschedulable pod, `created` then (RFC 3339), with `asked` requests already.
        Idempotent unless its group changes.
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

    def forget(self, pod: K, *, bound: bool = False, on_new_node: bool = False) -> int:
        """Forget a pod that is bound, perhaps on a Node that has just joined, terminated or
        deleted; return its number of requests.
        """
        waiting = self._waiting.pop(pod, None)
        if waiting is None:
            return 0
        group_state = self._groups[waiting.group]
        if bound and (waiting.asked or (on_new_node and group_state.asking)):
            group_state.at_a_time += 1
        if bound and waiting.asked:
            for each in group_state.asking.values():
                each.asked = min(each.asked, MAX_ADDITIONAL_PER_POD - 1)
        group_state.asking.pop(pod, None)
        group_state.others.pop(pod, None)
        group_state.next = [each for each in group_state.next if each is not waiting]
        if not group_state.asking and not group_state.others:
            del self._groups[waiting.group]
        return waiting.asked

    def defer(self, pod: K, now: float) -> None:
        """Take back the last request of `pod`, which no machine helps now, and pause it."""
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
        """The number of requests of `pod`."""
        waiting = self._waiting.get(pod)
        return waiting.asked if waiting else 0

    def asking(self) -> list[K]:
        """The pods that have requested machines, the oldest first."""
        asking = (each for group in self._groups.values() for each in group.asking.values())
        return [each.pod for each in sorted(asking, key=lambda each: each.created)]

    def due_requests(
        self, now: float, outlook: Callable[[K], Outlook], has_room: Callable[[K], bool]
    ) -> list[AdditionalRequest[K]]:
        """The requests that are due. `has_room` returns whether a pod fits on a Node now. To be
        called every few seconds, as time is counted between calls.
        """
        due = [
            each
            for group_state in self._groups.values()
            for each in self._due(group_state, now, outlook, has_room)
        ]
        chosen = heapq.nsmallest(MAX_REQUESTS_PER_PASS, due, key=lambda each: each.created)
        for each in chosen:
            each.asked, each.has_lost = each.asked + 1, False
            each.quiet = each.waited = 0.0
            group_state = self._groups[each.group]
            if each.pod in group_state.others:
                group_state.asking[each.pod] = group_state.others.pop(each.pod)
                group_state.next.remove(each)
        return [
            AdditionalRequest(each.pod, each.asked, self._groups[each.group].alone)
            for each in chosen
        ]

    def _due(
        self,
        group_state: _Group[K],
        now: float,
        outlook: Callable[[K], Outlook],
        has_room: Callable[[K], bool],
    ) -> Iterator[_Waiting[K]]:
        first = next(iter(group_state.asking or group_state.others))
        group_state.most_on_node = outlook(first).most_on_node
        self._fill_slots(group_state, now)
        for place, each in enumerate([*group_state.asking.values(), *group_state.next]):
            found = outlook(each.pod)
            should_wait = found.should_wait or (found.gang_unplaced and place > 0)
            each.pass_time(now, should_wait=should_wait, any_domain=found.any_domain)
            quiet = each.quiet - (GANG_TIMEOUT_SECONDS if found.gang_unplaced else 0.0)
            if each.asked < MAX_ADDITIONAL_PER_POD and (
                (quiet >= self._delay_seconds and each.may_retry())
                or (quiet >= each.no_room_delay and not has_room(each.pod))
            ):
                yield each

    def _fill_slots(self, group_state: _Group[K], now: float) -> None:
        """Fill the group's free slots with its oldest pods, whose time is counted from now on; pods
        keep their slots even if older ones come.
        """
        free = group_state.free
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
