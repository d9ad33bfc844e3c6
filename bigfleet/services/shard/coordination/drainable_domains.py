"""Which machines of other shards would serve a shortfall, if they were drained. Pure.

They serve lower priorities, by what the provider's metadata says of them; their shard knows better,
and refuses if it is otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.engine.explain.shortfall_report import ShortfallGroup
from bigfleet.engine.snapshot import Flavour, Longs, Rows
from bigfleet.model.report_limits import (
    DRAIN_AGE_CYCLES,
    MAX_DRAINABLE_DOMAINS,
    MAX_DRAINED_MACHINES,
)
from bigfleet.services.shard.coordination.helpful_domains import in_turn
from bigfleet.services.shard.records.views import BusyMachines


class OthersBusyMachines:
    """The `busy` machines of other shards, by flavour of a decision with `flavours`."""

    def __init__(self, busy: BusyMachines, flavours: Sequence[Flavour]) -> None:
        # The inventory may have renumbered its flavours since the decision.
        known = [n < len(flavours) and flavours[n] == f for n, f in enumerate(busy.flavours)]
        self._busy, self._known = busy, np.array(known, np.bool_)[busy.flavour]
        self._names = sorted(set(busy.domains))
        numbers = {domain: number for number, domain in enumerate(self._names)}
        of_flavour = np.array([numbers[domain] for domain in busy.domains], np.intp)
        self._domain = of_flavour[busy.flavour]

    def drainable_for(self, short: ShortfallGroup) -> list[wire.HelpfulDomain]:
        """Domains where drained machines hold most of its pods, the fewest machines first,
        `in_turn`; of a
        gang those that hold all of it. None unless it is old, nor for what never preempts, nor for
        pods with other topology constraints, which may not be allowed where they would fit.
        """
        busy, profile = self._busy, short.profile
        is_gang = profile.same_key is not None
        is_old = short.escalates and short.age_cycles > DRAIN_AGE_CYCLES
        is_constrained = any(each.hard for each in profile.spread) or profile.anti_affinity
        if not is_old or profile.never_preempts or is_constrained or not len(busy.ids):
            return []
        pods = np.zeros(len(busy.ids), np.int64)
        pods[self._known] = short.pods_per_machine[busy.flavour[self._known]]
        coming = int(pods[busy.coming].sum())
        if coming >= short.count or (is_gang and coming):
            return []  # machines are on their way
        wanted = -(-short.count // short.needs) if is_gang else short.count - coming
        usable = np.flatnonzero((pods > 0) & ~busy.coming & (busy.priority < short.priority))
        found = sorted(
            self._domains(profile.same_key, pods, usable, wanted),
            key=lambda each: (-each.drained_pods, len(each.drained_machine_ids)),
        )
        return in_turn(found, MAX_DRAINABLE_DOMAINS, short)

    def _domains(
        self, same_key: str | None, pods: Longs, usable: Rows, wanted: int
    ) -> Iterator[wire.HelpfulDomain]:
        busy = self._busy
        for number in np.unique(self._domain[usable]).tolist():
            domain = self._names[number]
            there = usable[self._domain[usable] == number]
            there = there[np.lexsort((there, -pods[there], busy.priority[there]))]
            held = np.cumsum(pods[there])
            machines = min(int(np.searchsorted(held, wanted)) + 1, len(there), MAX_DRAINED_MACHINES)
            holds = int(held[machines - 1])
            if same_key is not None and (domain.key != same_key or holds < wanted):
                continue
            yield wire.HelpfulDomain(
                topology_key=domain.key,
                topology_value=domain.value,
                drained_machine_ids=[busy.ids[at] for at in there[:machines].tolist()],
                drained_pods=min(holds, wanted),
                drained_priority=int(busy.priority[there[:machines]].max()),
            )
