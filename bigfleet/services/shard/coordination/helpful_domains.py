"""Which domains of other shards would help with a shortfall. Pure.

A shard reads all machines of its provider, also those in the domains of others. So it knows itself
which of them are free and would serve what it lacks, and the coordinator need not match the
requirements of one shard's needs with the machines of all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.engine.explain.shortfall_report import ShortfallGroup
from bigfleet.engine.snapshot import Flags, Flavour, Longs
from bigfleet.model.report_limits import MAX_FREE_DOMAINS
from bigfleet.services.shard.records.views import FreeMachines

# Time enough for the best domains to move, and for as long as each of the others is named.
_LASTS_CYCLES, _CYCLES_A_TURN = 60, 20
_T = TypeVar("_T")


def in_turn(best_first: Sequence[_T], most: int, short: ShortfallGroup) -> list[_T]:
    """The `most` best; of a shortfall that lasts, half of these and others in turn: the coordinator
    may have no use for the best, whose shard is down or refuses.
    """
    turn = max(0, short.age_cycles - _LASTS_CYCLES) // _CYCLES_A_TURN
    kept, others = best_first[: most // 2], best_first[most // 2 :]
    first = turn * (most - most // 2) % max(1, len(others))
    return [*kept, *others[first:], *others[:first]][:most]


class OthersFreeMachines:
    """The `free` machines of other shards as columns, by flavour of a decision with `flavours`."""

    def __init__(self, free: Sequence[FreeMachines], flavours: Sequence[Flavour]) -> None:
        # The inventory may have renumbered its flavours since the decision.
        known = [
            each
            for each in free
            if each.number < len(flavours) and flavours[each.number] == each.flavour
        ]
        self._domains = sorted({each.domain for each in known})
        numbers = {domain: number for number, domain in enumerate(self._domains)}
        self._domain = np.array([numbers[each.domain] for each in known], np.intp)
        self._flavour = np.array([each.number for each in known], np.intp)
        self._idle = np.array([each.idle for each in known], np.int64)
        self._free = self._idle + np.array([each.speculative for each in known], np.int64)

    def helpful_to(self, short: ShortfallGroup) -> list[wire.HelpfulDomain]:
        """The domains that would serve most of its pods, with idle machines first, `in_turn`; none
        unless it escalates. Of a need confined to one domain: those that hold the whole need.
        """
        if not short.escalates or not self._domains:
            return []
        pods = short.pods_per_machine[self._flavour]
        idle_pods, free_pods = (
            self._by_domain(self._idle * pods),
            self._by_domain(self._free * pods),
        )
        useful = pods > 0
        idle, free = self._by_domain(self._idle * useful), self._by_domain(self._free * useful)
        allowed = self._allowed(short, free_pods)
        order = np.lexsort((-free_pods, -idle_pods))
        return [
            wire.HelpfulDomain(
                topology_key=self._domains[number].key,
                topology_value=self._domains[number].value,
                idle_machines=idle[number],
                free_machines=free[number],
                idle_pods=idle_pods[number],
                free_pods=free_pods[number],
            )
            for number in in_turn(order[allowed[order]].tolist(), MAX_FREE_DOMAINS, short)
        ]

    def _allowed(self, short: ShortfallGroup, free_pods: Longs) -> Flags:
        same_key = short.profile.same_key
        if same_key is None:
            return free_pods > 0
        # A domain of another key may be a part of one, or contain several.
        of_key = np.array([domain.key == same_key for domain in self._domains], np.bool_)
        one_gang = -(-short.count // short.needs)
        return of_key & (free_pods >= one_gang)

    def _by_domain(self, amounts: Longs) -> Longs:
        sums = np.bincount(self._domain, amounts, minlength=len(self._domains))
        return sums.astype(np.int64)
