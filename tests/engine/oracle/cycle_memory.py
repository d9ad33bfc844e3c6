"""The oracle's memory of clusters between decisions."""

from __future__ import annotations

from dataclasses import replace

from bigfleet.engine.cycle_memory import ClusterMemory, Reacquired, SurplusSince
from tests.engine.oracle.cycle import Cycle, NeedView


class Memories:
    """`surplus` is the number of surplus machines of each cluster in which they were looked for;
    `unsearched` ones have as many as before.
    """

    def __init__(self, cycle: Cycle, surplus: dict[int, int], unsearched: set[int]) -> None:
        self._cycle, self._surplus, self._unsearched = cycle, surplus, unsearched

    def of(self, reclaimed: dict[int, int]) -> tuple[ClusterMemory, ...]:
        """The memory of all clusters, `reclaimed` of whose surplus machines are reclaimed."""
        names, found = self._cycle.fleet.clusters, []
        for number in sorted(range(len(names)), key=lambda number: names[number]):
            memory = self._next_memory(number, reclaimed.get(number, 0))
            if memory != ClusterMemory(names[number]):
                found.append(memory)
        return tuple(found)

    def _next_memory(self, number: int, reclaimed: int) -> ClusterMemory:
        cycle, memory = self._cycle, self._cycle.memory_of(number)
        now = cycle.now
        memory = self._with_surplus(number, memory, reclaimed)
        demand = cycle.demand_of(number)
        machines = {cycle.needs[i]: len(m) for i, m in cycle.acquired.items() if m}
        acquired = {need: count for need, count in machines.items() if need.cluster == number}
        memory = replace(memory, reacquired=self._reacquired(memory, acquired, demand))
        if cycle.settings.reclaim_hold_seconds:
            memory = self._with_peak(memory, demand)
        if acquired:
            if not self._cycle.memory_of(number).surplus:
                memory = replace(memory, grown_seconds=now)
            memory = replace(memory, acquired_seconds=now)
            memory = self._with_capacity(number, memory, demand)
        if reclaimed:
            memory = replace(memory, reclaimed_seconds=now, reclaimed_demand=demand)
        return memory

    def _with_capacity(self, number: int, memory: ClusterMemory, demand: float) -> ClusterMemory:
        """What it has for its demand: all if it grows, else additional needs add theirs."""
        cycle = self._cycle
        if not demand:
            return memory
        if not cycle.memory_of(number).surplus:
            slots = cycle.clusters[number].slots
            whole = sum(cycle.capacity_of(slot.machine) for slot in slots)
            return replace(memory, capacity_ratio=whole / demand)
        if memory.capacity_ratio is None:
            return memory
        wanted = [n for n in cycle.needs if n.cluster == number and n.kind == "additional"]
        its = [cycle.acquired.get(need.index, ()) for need in wanted]
        more = sum(cycle.capacity_of(machine) for machines in its for machine in machines)
        return replace(memory, capacity_ratio=memory.capacity_ratio + more / demand)

    def _reacquired(
        self, memory: ClusterMemory, acquired: dict[NeedView, int], demand: float
    ) -> tuple[Reacquired, ...]:
        """What was acquired again after a reclaim, and for how long it is held."""
        now, settings = self._cycle.now, self._cycle.settings
        gave = memory.reclaimed_seconds
        too_early = (
            gave is not None
            and now - gave < settings.reacquire_seconds
            and demand <= memory.reclaimed_demand * (1 + settings.reclaim_margin)
        )
        after = {each.fingerprint: each for each in memory.reacquired}
        again = {need.key.fingerprint for need in acquired} if too_early else set()
        for name, each in list(after.items()):
            seconds = settings.reacquire_seconds * each.hold_factor
            if name in again or now - each.since_seconds <= seconds:
                continue
            del after[name]
            if each.hold_factor > 2:
                after[name] = replace(each, hold_factor=each.hold_factor // 2, since_seconds=now)
        for name in again:
            count = sum(n for need, n in acquired.items() if need.key.fingerprint == name)
            if name not in after:
                after[name] = Reacquired(name, count, 2, now)
                continue
            each = replace(after[name], machines=after[name].machines + count)
            if gave is not None and gave > each.since_seconds:
                each = replace(each, hold_factor=min(32, 2 * each.hold_factor), since_seconds=now)
            after[name] = each
        return tuple(sorted(after.values()))

    def _with_peak(self, memory: ClusterMemory, demand: float) -> ClusterMemory:
        """The highest demand of four periods of a third of a hold each."""
        now, peaks = self._cycle.now, list(memory.peaks)
        length = self._cycle.settings.reclaim_hold_seconds / 3
        if demand == 0 and not peaks:
            return memory
        if memory.period_seconds is not None and (now - memory.period_seconds) / length < 1:
            peaks[0] = max(peaks[0], demand)
            return replace(memory, peaks=tuple(peaks))
        # Of periods without a decision nothing is known but what came after them.
        ended = 1 if memory.period_seconds is None else (now - memory.period_seconds) / length
        peaks = [demand] * min(4, int(ended)) + peaks
        return replace(memory, peaks=tuple(peaks[:4]), period_seconds=now)

    def _with_surplus(self, number: int, memory: ClusterMemory, reclaimed: int) -> ClusterMemory:
        """Since when each number of machines has been surplus; of numbers with the same time, the
        highest.
        """
        now = self._cycle.now
        if number in self._unsearched:
            fewer = [(s.machines - reclaimed, s.since_seconds) for s in memory.surplus]
            left = [SurplusSince(machines, since) for machines, since in fewer if machines > 0]
            return replace(memory, surplus=tuple(left))
        searched = now if number in self._surplus else None
        memory = replace(memory, searched_seconds=searched)
        now_surplus = self._surplus.get(number, 0) - reclaimed
        since = dict[int, float]()
        for machines in range(1, now_surplus + 1):
            moments = [
                s.since_seconds for s in memory.surplus if s.machines - reclaimed >= machines
            ]
            since[machines] = min(moments, default=now)
        last = {moment: machines for machines, moment in sorted(since.items())}
        levels = sorted(SurplusSince(machines, moment) for moment, machines in last.items())
        return replace(memory, surplus=tuple(levels))
