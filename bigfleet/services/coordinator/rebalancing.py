"""Which domains move so that each shard has its even part of every instance type. Pure.

A shard that joins has nothing, and one that was started first may have everything. For each
instance type, the shard with the most machines gives domains to the one with the fewest, while one
of the two is further than a margin from the even part and the move brings them closer. So the
differences become smaller with every move, and a fleet within its margin is at rest.

Shards report which domains they could give: those with the fewest machines in use, and none in
which a gang runs. Machines in use stay with their cluster, and so with the donor, until they are
free. A shard that lacks machines itself gives none. Domains on loan count for their home, so that
what has moved because of a shortfall neither moves back nor moves others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.services.coordinator.domain_moves import Cause, DomainMove, MoveMemory, moves_allowed
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Domain

# A shard has its even part of a type with at most this share more or fewer machines.
MARGIN = 0.1


def choose(
    registry: Registry,
    reports: Sequence[wire.ShardReportSnapshot],
    memory: MoveMemory,
    now_seconds: float,
) -> list[DomainMove]:
    """The domains to move now, from the `reports` of all live shards that are not leaving."""
    balance = _Balance(registry, reports, memory, now_seconds)
    types = {name for counts in balance.machines.values() for name in counts}
    moves: list[DomainMove] = []
    for instance_type in sorted(types):
        for move in balance.moves(instance_type):
            if len(moves) >= moves_allowed(registry, balance.machines):
                return moves
            moves.append(move)
    return moves


class _Balance:
    """`machines` counts those of each shard by type, with those of the moves chosen so far."""

    def __init__(
        self,
        registry: Registry,
        reports: Sequence[wire.ShardReportSnapshot],
        memory: MoveMemory,
        now_seconds: float,
    ) -> None:
        self.machines = {
            report.shard_id: registry.home_load(report.shard_id).of_type.copy()
            for report in reports
        }
        self._movable: dict[tuple[str, str], list[Domain]] = {}
        for report in reports:
            # What it lacks may be what it would give.
            for each in () if report.shortfalls else _least_used_first(report.movable_domains):
                row = registry.domains.get((each.topology_key, each.topology_value))
                own = row is not None and row.shard == row.home == report.shard_id
                if row is not None and own and memory.may_move(row, now_seconds):
                    known = self._movable.setdefault((row.shard, row.instance_type), [])
                    known.append(row)

    def moves(self, instance_type: str) -> Iterator[DomainMove]:
        """Those that bring the shards' numbers of machines of a type within the margin."""
        even = sum(counts[instance_type] for counts in self.machines.values()) / len(self.machines)
        while (found := self._next(instance_type, even)) is not None:
            row, to = found
            giving, taking = self.machines[row.shard], self.machines[to]
            reason = (
                f"shard {row.shard} had {giving[instance_type]} machines of type {instance_type} "
                f"and shard {to} {taking[instance_type]}, where {even:.0f} would be even"
            )
            giving[instance_type] -= row.machines
            taking[instance_type] += row.machines
            self._movable[row.shard, instance_type].remove(row)
            yield DomainMove(row.name, to, Cause.BALANCE, reason)

    def _next(self, instance_type: str, even: float) -> tuple[Domain, str] | None:
        def load(shard: str) -> tuple[int, int, str]:
            counts: Counter[str] = self.machines[shard]
            return counts[instance_type], counts.total(), shard

        to = min(self.machines, key=load)
        fewest = self.machines[to][instance_type]
        for shard in sorted(self.machines, key=load, reverse=True):
            most = self.machines[shard][instance_type]
            if most <= even * (1 + MARGIN) and fewest >= even * (1 - MARGIN):
                return None
            for row in self._movable.get((shard, instance_type), ()):
                # Otherwise the two would only change places.
                if 0 < row.machines < most - fewest:
                    return row, to
        return None


def _least_used_first(movable: Sequence[wire.MovableDomain]) -> list[wire.MovableDomain]:
    return sorted(
        movable, key=lambda each: (each.machines_in_use, each.topology_key, each.topology_value)
    )
