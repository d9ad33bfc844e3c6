"""The oracle's machines ahead of folded gangs."""

from __future__ import annotations

from tests.engine.oracle.acquiring import choose, free_machines
from tests.engine.oracle.cycle import Cycle, NeedView
from tests.engine.oracle.objects import Machine, PodSize, S


class Headroom:
    """By cluster, the machines that it has ahead of its folded gangs."""

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
        """All of them."""
        return frozenset(m.row for machines in self._ahead.values() for m in machines)

    def retain(self) -> None:
        """Set apart a machine without pods for each largest gang that none is there for yet."""
        self._ahead = {}
        for size, need in self._gangs:
            cluster = self._cycle.cluster_of(need)
            empty = [s.machine for s in cluster.slots if not s.pods and not s.machine.is_gone]
            unused = [machine for machine in empty if machine.ahead]
            unused += [m for m in empty if m.state is S.CONFIGURED and not m.ahead]
            for machine in [*cluster.headroom_pool, *unused]:
                if not self._has_room(size, need) and self._holds(size, need, machine):
                    self._ahead.setdefault(need.cluster, []).append(machine)
                    cluster.slots = [s for s in cluster.slots if s.machine is not machine]
                    if machine not in cluster.headroom_pool:
                        cluster.headroom_pool.append(machine)

    def acquire(self) -> None:
        """Choose again, now that everybody was served, and acquire what is missing."""
        cycle = self._cycle
        self.retain()
        for size, need in self._gangs:
            if need.lacks or need.index in cycle.not_acquiring or self._has_room(size, need):
                continue
            size.left += 1
            chosen = choose(
                cycle, need, (), free_machines(cycle, need), pods_at_most=1, one_machine=True
            )
            size.left -= 1
            for one in chosen:
                one.machine.is_gone, one.machine.ordered_by = True, need.index
                cycle.acquired.setdefault(need.index, []).append(one.machine)
                self._ahead.setdefault(need.cluster, []).append(one.machine)

    def _has_room(self, size: PodSize, need: NeedView) -> bool:
        return any(self._holds(size, need, m) for m in self._ahead.get(need.cluster, ()))

    def _holds(self, size: PodSize, need: NeedView, machine: Machine) -> bool:
        room = self._cycle.room(need.cluster, machine.flavour)
        return need.accepts(machine.flavour) and need.holds_one(room, size)
