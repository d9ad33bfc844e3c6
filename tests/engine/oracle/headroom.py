"""The oracle's headroom for folded gangs."""

from __future__ import annotations

from tests.engine.oracle.acquiring import choose, free_machines
from tests.engine.oracle.cycle import Cycle, NeedView
from tests.engine.oracle.objects import Machine, PodSize, S
from tests.engine.oracle.reclaim import ReclaimPhase


class Headroom:
    """The headroom machines of each cluster."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        found = [
            (next(size for size in need.sizes if not size.impossible), need)
            for need in cycle.needs
            if need.is_folded and not all(size.impossible for size in need.sizes)
        ]
        self._gangs = sorted(found, key=lambda pair: (-pair[0].share, pair[1].index))
        self._ahead: dict[int, list[Machine]] = {}

    @property
    def rows(self) -> frozenset[int]:
        """All headroom machines."""
        return frozenset(m.row for machines in self._ahead.values() for m in machines)

    def retain(self) -> None:
        """Set aside a machine without pods for each gang that none is large enough for yet."""
        self._ahead = {}
        for size, need in self._gangs:
            cluster = self._cycle.cluster_of(need)
            empty = [
                s.machine for s in cluster.slots if not s.pods and not s.machine.is_unavailable
            ]
            unused = [machine for machine in empty if machine.headroom]
            unused += [m for m in empty if m.state is S.CONFIGURED and not m.headroom]
            for machine in [*cluster.headroom_pool, *unused]:
                if not self._has_room(size, need) and self._holds(size, need, machine):
                    self._ahead.setdefault(need.cluster, []).append(machine)
                    cluster.slots = [s for s in cluster.slots if s.machine is not machine]
                    if machine not in cluster.headroom_pool:
                        cluster.headroom_pool.append(machine)

    def acquire(self, reclaim: ReclaimPhase) -> None:
        """Choose again, now that all needs are served; then keep machines that would be released,
        and acquire missing ones.
        """
        cycle = self._cycle
        self.retain()
        for size, need in self._gangs:
            if need.lacks or self._has_room(size, need):
                continue
            if kept := [m for m in reclaim.spare(need.cluster) if self._holds(size, need, m)]:
                reclaim.going.remove(kept[-1])
                self._ahead.setdefault(need.cluster, []).append(kept[-1])
                continue
            if need.index in cycle.not_acquiring:
                continue
            size.left += 1
            chosen = choose(
                cycle, need, (), free_machines(cycle, need), pods_at_most=1, one_machine=True
            )
            size.left -= 1
            for one in chosen:
                one.machine.is_unavailable, one.machine.ordered_by = True, need.index
                cycle.acquired.setdefault(need.index, []).append(one.machine)
                self._ahead.setdefault(need.cluster, []).append(one.machine)

    def _has_room(self, size: PodSize, need: NeedView) -> bool:
        return any(self._holds(size, need, m) for m in self._ahead.get(need.cluster, ()))

    def _holds(self, size: PodSize, need: NeedView, machine: Machine) -> bool:
        room = self._cycle.room(need.cluster, machine.flavour)
        return need.accepts(machine.flavour) and need.holds_one(room, size)
