"""One machine ahead of small gangs, the slow way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_oracle_rules import Host, suitable

from bigfleet.model.need import Need

if TYPE_CHECKING:
    from engine_oracle import Oracle


class Ahead:
    """By cluster, the machines that are more than the gangs need."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.hosts: dict[int, list[Host]] = {}

    def gangs(self) -> list[tuple[int, Need]]:
        """Those that fit on one machine, the largest first."""
        found = [
            (index, need)
            for index, need in enumerate(self.oracle.demand.needs)
            if need.group.startswith("folded:") and any(need.aggregate.values())
        ]
        return sorted(found, key=lambda gang: sorted(gang[1].largest.items()), reverse=True)

    def of_cluster(self, index: int) -> list[Host]:
        """What the gang's cluster has ahead."""
        return self.hosts.setdefault(int(self.oracle.demand.cluster[index]), [])

    def has_room(self, index: int, need: Need) -> bool:
        """Whether a machine ahead would do for the gang."""
        return any(suitable(host, need) for host in self.of_cluster(index))

    def retain(self, leaving: list[Host]) -> list[Host]:
        """Choose among what nobody counts."""
        self.hosts = {}
        for index, need in self.gangs():
            if not self.has_room(index, need):
                spare = [host for host in self.oracle.creditable(index) if host not in leaving]
                self.of_cluster(index).extend(spare[:1])
        return [host for hosts in self.hosts.values() for host in hosts]

    def acquire(self, leaving: list[Host]) -> None:
        """Choose again, and buy what is missing."""
        oracle = self.oracle
        self.retain(leaving)
        for index, need in self.gangs():
            if self.has_room(index, need) or oracle.lacks(index) or index in oracle.expired:
                continue
            before = oracle.missing[index]
            oracle.missing[index] = {name: need.largest.get(name, 0) for name in before}
            bought = oracle.buy(index, [], oracle.acquirable(index))
            oracle.missing[index] = before
            oracle.acquired[index] = [*oracle.acquired.get(index, []), *bought]
            self.of_cluster(index).extend(bought)
