"""Recognizes clusters in which pods are placed as in an earlier decision.

Where the pods of a priority go in a cluster follows from its machines, what was placed there before
and the pods themselves. All of that is mixed into one number of 64 bits, the cluster's key, and
what was placed is remembered by it. So only clusters are packed that have changed.

Nothing in a key depends on which other clusters and needs there are: a need counts by the number of
its identity, and a class by its pods.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bigfleet.engine.fit.capacity import Capacities
from bigfleet.engine.fit.pod_classes import PodClasses
from bigfleet.engine.kernels.scoring import PlacementLog
from bigfleet.engine.kernels.sorting import order_of
from bigfleet.engine.snapshot import NONE, Demand, Floats, Ints, Longs, Rows
from bigfleet.engine.state.packing_columns import PackingColumns
from bigfleet.engine.state.packing_order import ClassesInOrder

#: numbers of 64 bits that look random; what is computed with them wraps around
Keys = NDArray[np.uint64]

# Odd, so that a product loses no bit; so are its powers.
_FACTOR = 0x9E3779B97F4A7C15
# No multiple of that by a small number.
_FIRST = 0xD1B54A32D192ED03


class Remembered(NamedTuple):
    """What was placed for one priority in Q clusters."""

    #: [Q] int64, the clusters in ascending order, and the key of each
    clusters: Longs
    keys: Keys
    #: [Q + 1] int64, delimits the placements of each
    start: Longs
    #: the classes are places among those that were to be placed in the cluster
    placed: PlacementLog


NOTHING = Remembered(
    np.empty(0, np.int64),
    np.empty(0, np.uint64),
    np.zeros(1, np.int64),
    PlacementLog(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int64)),
)


class PackingMemory:
    """What the last decision on the same flavours placed, by priority."""

    def __init__(self) -> None:
        self._last: Mapping[int, Remembered] = {}

    def begin(self, fresh: Mapping[int, Remembered]) -> Mapping[int, Remembered]:
        """What the last decision placed; the next one gets `fresh`, which the caller fills."""
        last, self._last = self._last, fresh
        return last


def find(remembered: Remembered, clusters: Longs, keys: Keys) -> Longs:
    """The positions [Q] in `remembered` of these `clusters` [Q], in ascending order, where their
    `keys` are the same; NONE for others.
    """
    at = np.searchsorted(remembered.clusters, clusters)
    at[at == len(remembered.clusters)] = 0
    if not len(remembered.clusters):
        return np.full(len(clusters), NONE, np.int64)
    same = (remembered.clusters[at] == clusters) & (remembered.keys[at] == keys)
    return np.where(same, at, NONE)


class KeyParts:
    """What the keys of clusters are mixed of."""

    def __init__(self, classes: PodClasses, demand: Demand) -> None:
        priorities = _words(classes.priority)
        of_needs = _mixed(_words(_identities(demand)), priorities)
        of_fit = _hashes(classes.fit_keys)
        #: [N + 1], a need of the cluster, the last for none
        self._of_need = np.append(of_needs, np.uint64(0))
        #: [N + 1], a need of another cluster: it matters by its priority only
        self._of_foreign = np.append(_mixed(priorities), np.uint64(0))
        #: [N + 1] int32, the cluster of each need
        self._cluster = np.append(demand.cluster, np.int32(NONE))
        #: [C]
        self._of_class = _mixed(
            of_needs[classes.need],
            of_fit[classes.flavour_fit],
            classes.share_steps.view(np.uint64),
            *map(_words, classes.sizes.T),
        )

    def of_machines(
        self,
        clusters: Rows,
        machines: PackingColumns,
        start: Longs,
        strategies: Floats,
        capacities: Capacities,
    ) -> Keys:
        """The keys of P `clusters` with these `machines` without pods, which `start` [P + 1]
        delimits; `strategies` [P, 3] are how they consolidate.
        """
        of_machine = np.repeat(np.arange(len(clusters)), np.diff(start))
        last = machines.last_claimed_by
        words = _mixed(
            np.where(
                self._cluster[last] == clusters[of_machine],
                self._of_need[last],
                self._of_foreign[last],
            ),
            _words(machines.flavour),
            _words(machines.max_priority),
            _words(np.arange(len(last)) - start[of_machine]),
        )
        numbers = capacities.numbers(clusters.astype(np.int32))
        matrices = _hashes([capacities.key(each) for each in range(numbers.max(initial=-1) + 1)])
        weights = (np.ascontiguousarray(each).view(np.uint64) for each in strategies.T)
        return _mixed(_sums(words, start), matrices[numbers], *weights)

    def with_pods(self, keys: Keys, placed: Sequence[PlacementLog]) -> Keys:
        """The `keys` of Q clusters once this has been placed in each."""
        start = np.cumsum([0, *(len(each.pods) for each in placed)])
        machine, pod_class, pods = map(np.concatenate, zip(*placed, strict=True))
        words = _mixed(self._of_class[pod_class], _words(machine), _words(pods))
        return _mixed(keys, _sums(words, start))

    def for_pods(self, keys: Keys, priority: int, left: Longs, orders: ClassesInOrder) -> Keys:
        """The `keys` of Q clusters where pods of this `priority` are to be placed: those `left` [C]
        of the classes in `orders`.
        """
        its = orders.classes
        words = _mixed(self._of_class[its], _words(left[its]), _words(orders.places()))
        return _mixed(keys, _sums(words, orders.start), _words(np.full(len(keys), priority)))


def _identities(demand: Demand) -> Longs:
    """[N] a number that no other need of the same cluster has, in the next decision either."""
    # The place among the cluster's needs, for those that whoever keeps demands has not numbered.
    order = order_of(demand.cluster.astype(np.int64))
    cluster, place = demand.cluster[order], np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - np.searchsorted(cluster, cluster)
    if demand.number is None:
        return place
    return np.where(demand.number == NONE, -1 - place, demand.number)


def _mixed(*columns: Keys) -> Keys:
    """One word for each row of words."""
    # Not from zero, or words of zeros, such as need 0 of priority 0, would be the word for none.
    total = np.full(len(columns[0]), np.uint64(_FIRST))
    for power, column in enumerate(columns, 1):
        total += column * np.uint64(pow(_FACTOR, power, 1 << 64))
    # The finalizer of SplitMix64: each bit depends on all.
    total ^= total >> np.uint64(30)
    total *= np.uint64(0xBF58476D1CE4E5B9)
    total ^= total >> np.uint64(27)
    total *= np.uint64(0x94D049BB133111EB)
    total ^= total >> np.uint64(31)
    return total


def _sums(words: Keys, start: Longs) -> Keys:
    """The sums of `words` from each `start` to the next."""
    total = np.zeros(len(words) + 1, np.uint64)
    np.cumsum(words, out=total[1:])
    return total[start[1:]] - total[start[:-1]]


def _words(numbers: Ints | Longs) -> Keys:
    """Whole numbers as words."""
    return numbers.astype(np.int64).view(np.uint64)


def _hashes(keys: Sequence[Hashable]) -> Keys:
    return _words(np.array([*map(hash, keys)], np.int64))
