"""Whose each machine is, where several shards share a fleet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from bigfleet.model.domain import Domain, domain_of
from bigfleet.model.machine import Machine, MachineEvent
from bigfleet.ports.provider import Fence
from bigfleet.services.shard.records.machine_class import class_of
from bigfleet.simulation.hosts.shard_host import ShardHost


class Ownership:
    """Watches that no machine has two masters. `removed` names shards that were taken out of the
    fleet: nobody listens to them any more.
    """

    def __init__(self, hosts: Mapping[str, ShardHost]) -> None:
        self._hosts = hosts

    def conflicts(self, removed: Collection[str]) -> Iterator[str]:
        """Sentences about domains that two shards may act in."""
        owners: defaultdict[Domain, list[str]] = defaultdict(list)
        for name, host in self._hosts.items():
            if name not in removed:
                for domain in host.held.domains:
                    owners[domain].append(name)
        for domain, names in owners.items():
            if len(names) > 1:
                yield f"{domain} is owned by {' and '.join(names)}"

    def trespass(self, fence: Fence, machine: Machine, event: MachineEvent) -> Iterator[str]:
        """A sentence if the shard that gave the order, which has been begun, may not give it;
        `machine` is as it was before.
        """
        held = self._hosts[fence.shard_id].held
        domain = domain_of(class_of(machine).flavour.labels)
        if machine.cluster:
            if machine.cluster not in held.clusters and self._serving(machine.cluster):
                where = f"in {machine.cluster}, which {self._serving(machine.cluster)} serves"
                yield f"{event.name} of {machine.id} {where}, was ordered by {fence.shard_id}"
        elif domain not in held.domains:
            owner = next((n for n, h in self._hosts.items() if domain in h.held.domains), "nobody")
            where = f"of {domain}, which is {owner}'s"
            yield f"{event.name} of {machine.id} {where}, was ordered by {fence.shard_id}"

    def orphans(self, machines: Mapping[str, Machine], removed: Collection[str]) -> Iterator[str]:
        """Sentences about machines that not exactly one shard decides about."""
        shards = [
            (name, host.shard)
            for name, host in self._hosts.items()
            if name not in removed and host.shard is not None
        ]
        for machine in machines.values():
            owners = [name for name, shard in shards if shard.inventory.owns(machine.id)]
            if len(owners) != 1:
                who = " and ".join(owners) or "no shard"
                where = f"{machine.state.name} in {machine.cluster or 'no cluster'}"
                yield f"{machine.id}, {where}, is the business of {who}"

    def _serving(self, cluster: str) -> str:
        names = (name for name, host in self._hosts.items() if cluster in host.held.clusters)
        return next(names, "")
