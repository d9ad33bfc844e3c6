"""Builds one need from the requests of one profile and group, by size."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from bigfleet.api.need_codec import need_to_wire
from bigfleet.api.v1alpha1.capacity_pb2 import CapacityNeed
from bigfleet.controllers.operator.merging import Amounts
from bigfleet.controllers.operator.size_classes import (
    MAX_CLASSES,
    Classes,
    MergeCandidate,
    SizeClasses,
)
from bigfleet.model.group import Group
from bigfleet.model.need import Need, Profile, sizes_of

K = TypeVar("K", bound=Hashable)
# A gang that stops growing while incomplete (a quota, a failing webhook) is reported as it is.
GANG_TIMEOUT_SECONDS = 30.0


class NeedBuilder(Generic[K]):
    """Requests by size, and the need that is reported for them.

    A gang's requests arrive one by one. Reported early, the first of them would get machines in a
    domain that may not fit the rest, and the pods bound there would pin the others to it. So a gang
    is reported only once all `members` exist.
    """

    def __init__(self, profile: Profile, group: Group) -> None:
        self._profile, self._group = profile, group
        self._members = 0
        self._complete = False
        self._grown, self._grown_at = False, 0.0
        # By size, each request and when it was made.
        self._requests: dict[Amounts, dict[K, float]] = {}
        self._size_classes = SizeClasses()
        self._most = MAX_CLASSES
        self._classes: Classes = {}
        self._wire: CapacityNeed | None = None
        self._bytes, self._bytes_of_sizes = 0, 0

    def put(self, key: K, size: Amounts, created: float, members: int) -> None:
        """Add a request, of a gang of `members`, 0 if unknown."""
        self._wire = None
        self._requests.setdefault(size, {})[key] = created
        self._members = max(self._members, members)
        self._grown = True

    def remove(self, key: K, size: Amounts) -> bool:
        """Remove a request; False when none is left."""
        self._wire = None
        del self._requests[size][key]
        if not self._requests[size]:
            del self._requests[size]
        return bool(self._requests)

    def incomplete(self, now: float) -> bool:
        """Whether the gang is still incomplete; once complete, it stays so."""
        if self._grown:
            self._grown, self._grown_at = False, now
        complete = sum(map(len, self._requests.values())) >= self._members
        self._complete |= complete or now - self._grown_at >= GANG_TIMEOUT_SECONDS
        return not self._complete

    def mark_complete(self) -> None:
        """Treat the gang as complete."""
        self._complete = True

    def need(self) -> Need:
        """The need with all distinct sizes."""
        sizes = ((dict(size), len(requests)) for size, requests in self._requests.items())
        return Need(self._profile, sizes_of(sizes), self._group)

    def limit(self, most: int) -> None:
        """Report at most so many classes of sizes from now on."""
        if most != self._most and max(len(self._classes), len(self._requests)) > min(
            most, self._most
        ):
            self._wire = None
        self._most = most

    def wire(self) -> CapacityNeed:
        """The reported message, cached until a request changes; do not modify it."""
        if self._wire is None:
            self._classes = self._size_classes.of(self._pods(), self._most)
            sizes = (
                (dict(class_size), sum(len(self._requests[size]) for size in members))
                for class_size, members in self._classes.items()
            )
            self._wire = need_to_wire(Need(self._profile, sizes_of(sizes), self._group))
            self._bytes, self._bytes_of_sizes = self._wire.ByteSize(), self._wire.sizes.ByteSize()
        return self._wire

    def bytes(self) -> tuple[int, int]:
        """The bytes of the sizes in the reported message, and those of all other fields."""
        self.wire()
        return self._bytes_of_sizes, self._bytes - self._bytes_of_sizes

    def merge_candidate(self, weight: float) -> MergeCandidate:
        """The cost of fewer classes of sizes; `weight` is the need's share of the demand."""
        each = self.bytes()[0] / max(1, len(self._classes))
        return MergeCandidate(
            min(MAX_CLASSES, len(self._requests)),
            each,
            weight,
            self._size_classes.steps(self._pods()),
        )

    def newest(self, size: Amounts | None) -> list[K] | None:
        """The requests in a reported class, newest first; in all classes for None. None for a size
        that was not reported.
        """
        if size is None:
            members: Iterable[Amounts] = self._requests
        elif size in self._classes:
            members = self._classes[size]
        elif size in self._requests:
            members = [size]
        else:
            return None
        found = [
            (created, key)
            for each in members
            for key, created in reversed(self._requests.get(each, {}).items())
        ]
        return [key for _, key in sorted(found, key=lambda pair: -pair[0])]

    def _pods(self) -> Mapping[Amounts, int]:
        return {size: len(requests) for size, requests in self._requests.items()}
