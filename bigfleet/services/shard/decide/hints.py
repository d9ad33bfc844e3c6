"""Capacity hints: for each cluster, how much matching capacity is available for its needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np

from bigfleet.api import need_codec
from bigfleet.api.v1alpha1 import provider_pb2, shard_pb2
from bigfleet.engine.columns import columns_of
from bigfleet.engine.fit.matching import Matcher
from bigfleet.engine.snapshot import Demand, Flags, Fleet, Longs
from bigfleet.model import resources
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need, Size

MIN_INTERVAL_SECONDS = 5.0
_MOST = 2**31 - 1

_Hint = shard_pb2.AvailableCapacityUpdate
HintsByNeed = Mapping[tuple[str, str], _Hint]


class CapacityHints:
    """One hint per cluster and profile, sent when it changes, at most every 5 s."""

    def __init__(self) -> None:
        #: by cluster and profile, the content of the last hint
        self._sent: dict[str, dict[str, bytes]] = {}
        self._next_seconds = 0.0

    def are_due(self, now_seconds: float) -> bool:
        """Whether hints are due; if so, the next time is 5 s later."""
        if now_seconds < self._next_seconds:
            return False
        self._next_seconds = now_seconds + MIN_INTERVAL_SECONDS
        return True

    def changes(
        self, hints: HintsByNeed | None, connected: Collection[str]
    ) -> Iterator[tuple[str, shard_pb2.ShardMessage]]:
        """Messages to `connected` clusters: hints that have changed, and withdrawals of those for
        profiles no longer asked for; none if `hints` is None.
        """
        if hints is None:
            return
        before, self._sent = self._sent, {name: {} for name in connected}
        # Many clusters have the same hints.
        contents: dict[int, bytes] = {}
        for (cluster, fingerprint), hint in hints.items():
            if (sent := self._sent.get(cluster)) is not None:
                content = contents.get(id(hint))
                if content is None:
                    content = contents[id(hint)] = hint.SerializeToString(deterministic=True)
                if before.get(cluster, {}).get(fingerprint) != content:
                    yield cluster, shard_pb2.ShardMessage(available_capacity=hint)
                sent[fingerprint] = content
        for cluster, sent in self._sent.items():
            yield from _withdrawals(cluster, before.get(cluster, {}).keys() - sent.keys())

    def forget(self, cluster: str) -> None:
        """Send the cluster everything again in its next session."""
        self._sent.pop(cluster, None)


def _withdrawals(
    cluster: str, fingerprints: Iterable[str]
) -> Iterator[tuple[str, shard_pb2.ShardMessage]]:
    for fingerprint in sorted(fingerprints):
        withdrawn = _Hint(supersedes_key=hint_key(fingerprint), withdrawn=True)
        yield cluster, shard_pb2.ShardMessage(available_capacity=withdrawn)


def hints_of(fleet: Fleet, demand: Demand, connected: Collection[str]) -> HintsByNeed:
    """Hints for the `connected` clusters, by cluster and profile fingerprint."""
    supply = _Supply(fleet)
    is_connected = [name in connected for name in fleet.clusters]
    hint_by_class: dict[tuple[str, tuple[Size, ...]], _Hint] = {}
    hints: dict[tuple[str, str], _Hint] = {}
    for need, number in zip(demand.needs, demand.cluster.tolist(), strict=True):
        key = fleet.clusters[number], need.profile.fingerprint
        if is_connected[number] and key not in hints:
            # Many clusters ask for the same few machine classes.
            class_key = key[1], need.sizes
            hint = hint_by_class.get(class_key)
            if hint is None:
                hint = hint_by_class[class_key] = supply.hint(need)
            hints[key] = hint
    return hints


class _Supply:
    """The free machines of a fleet, by flavour."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._columns = columns_of(fleet.flavours)
        self._matcher = Matcher(self._columns)
        self._idle = self._count(MachineState.IDLE)
        self._speculative = self._count(MachineState.SPECULATIVE)

    def hint(self, need: Need) -> _Hint:
        """The hint for `need`: HIGH for idle machines, MEDIUM for speculative ones."""
        usable = self._usable(need)
        for confidence, free in ((_Hint.HIGH, self._idle), (_Hint.MEDIUM, self._speculative)):
            found = np.flatnonzero(usable & (free > 0))
            if len(found):
                count = int(free[found].sum())
                return self._found(need, confidence, count, self._cheapest(found))
        return _base(need, _Hint.NONE)

    def _usable(self, need: Need) -> Flags:
        """Flavours that the need accepts and that fit its largest pod that fits any of them."""
        accepted = self._matcher.accepting(need.profile)
        place, allocatable = self._columns.column_of, self._columns.allocatable
        for size in sorted(need.sizes, reverse=True, key=lambda size: size.amounts):
            if all(name in place for name, _ in size.amounts):
                holds = [allocatable[:, place[name]] >= amount for name, amount in size.amounts]
                usable: Flags = accepted & np.logical_and.reduce(holds)
                if usable.any():
                    return usable
        return np.zeros(len(self._columns), np.bool_)

    def _found(
        self, need: Need, confidence: _Hint.Confidence.ValueType, count: int, flavour: int
    ) -> _Hint:
        hint = _base(need, confidence)
        hint.available_count = _rounded(count)
        hint.cost_per_hour = self._fleet.flavours[flavour].price_per_hour
        allocatable = self._fleet.flavours[flavour].allocatable
        hint.resources.CopyFrom(provider_pb2.Resources(resources=resources.texts(allocatable)))
        return hint

    def _cheapest(self, flavours: Longs) -> int:
        return int(flavours[np.argmin(self._columns.price[flavours])])

    def _count(self, state: MachineState) -> Longs:
        rows = self._fleet.state == state
        return np.bincount(self._fleet.flavour[rows], minlength=len(self._fleet.flavours))


def _base(need: Need, confidence: _Hint.Confidence.ValueType) -> _Hint:
    return _Hint(
        supersedes_key=hint_key(need.profile.fingerprint),
        requirements=need_codec.requirements_to_wire(need.profile.requirements),
        confidence=confidence,
    )


def _rounded(count: int) -> int:
    """A count to two digits, rounded down: each change is a message to every cluster with such a
    need, and of thousands of machines some come and go all the time.
    """
    step: int = 10 ** max(0, len(str(count)) - 2)
    return min(count // step * step, _MOST)


def hint_key(fingerprint: str) -> str:
    """What identifies the hints about the needs of one profile."""
    return f"capacity:{fingerprint}"
